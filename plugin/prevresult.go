package plugin

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"

	types100 "github.com/containernetworking/cni/pkg/types/100"
	"github.com/containernetworking/plugins/pkg/ns"
)

// listing is what prevResult says about the sandbox. It is only a claim: which interfaces exist, what
// they are and where their other ends are is asked of the kernel (sandbox.go). The Mac field of an
// entry is never looked at, since the VPC CNI keeps the number of a route table there.
type listing struct {
	inPod []string                // names of interfaces listed with the sandbox, in order
	hosts map[string]bool         // names of interfaces listed without a sandbox
	addrs map[string][]netip.Addr // by name of the interface in the sandbox
}

// readListing sorts the entries of prevResult. An entry whose Sandbox is no network namespace is a
// pseudo interface and skipped: the VPC CNI ends its result with one, "dummy…", whose Sandbox is the
// number of a device. An entry in another network namespace than the sandbox is an error: it may carry
// the pod's traffic, and nothing here could filter it.
func readListing(prev *types100.Result, sandbox string) (listing, error) {
	l := listing{hosts: map[string]bool{}, addrs: map[string][]netip.Addr{}}
	inPod := make(map[int]string, len(prev.Interfaces)) // by index in prevResult
	var errs []error
	for i, entry := range prev.Interfaces {
		switch {
		case entry == nil:
		case entry.Sandbox == "":
			l.hosts[entry.Name] = true
		case isSameNetns(entry.Sandbox, sandbox):
			l.inPod = append(l.inPod, entry.Name)
			inPod[i] = entry.Name
		case isNetns(entry.Sandbox):
			errs = append(errs, fmt.Errorf("prevResult lists %s in %s, which is not the sandbox %s", entry.Name, entry.Sandbox, sandbox))
		}
	}
	for _, ip := range prev.IPs {
		if ip == nil || ip.Interface == nil {
			continue // the kernel knows where it is
		}
		name, ok := inPod[*ip.Interface]
		addr, valid := netip.AddrFromSlice(ip.Address.IP)
		if ok && valid {
			l.addrs[name] = append(l.addrs[name], addr.Unmap())
		}
	}
	return l, errors.Join(errs...)
}

func isNetns(path string) bool {
	return filepath.IsAbs(path) && ns.IsNSorErr(path) == nil
}

// isSameNetns compares paths first, so that a sandbox that is gone still is itself.
func isSameNetns(path, sandbox string) bool {
	if path == sandbox {
		return true
	}
	if !isNetns(path) {
		return false
	}
	a, errA := os.Stat(path)
	b, errB := os.Stat(sandbox)
	return errA == nil && errB == nil && os.SameFile(a, b)
}

// choose picks the interfaces of the sandbox that ADD has to bring under enforcement: those that
// prevResult lists, on either end. All of the sandbox is picked when prevResult does not list what is
// in it (no list, or a listed name that does not exist, since the interface may bear another name by
// now); other attachments of the pod are left alone when it does. Each of them must be enforceable, or
// none is: a pod with one interface left open is worse than a pod that does not start.
func (l listing) choose(found []endpoint) ([]endpoint, error) {
	everything := !l.describes(found)
	var chosen []endpoint
	var errs []error
	for _, ep := range found {
		wanted := slices.Contains(l.inPod, ep.Name) || ep.Err == nil && l.hosts[ep.Host.Name] || everything && ep.carriesTraffic()
		switch {
		case wanted && ep.Err != nil:
			errs = append(errs, fmt.Errorf("%s: %w", ep.Name, ep.Err))
		case wanted:
			chosen = append(chosen, ep)
		}
	}
	if len(errs) > 0 {
		return nil, fmt.Errorf("cannot enforce policy on interfaces of the sandbox: %w", errors.Join(errs...))
	}
	if len(chosen) == 0 {
		return nil, errors.New("cannot enforce policy: no veth in the sandbox")
	}
	return chosen, nil
}

// describes tells whether prevResult lists interfaces in the sandbox and all of them exist.
func (l listing) describes(found []endpoint) bool {
	for _, name := range l.inPod {
		if !slices.ContainsFunc(found, func(ep endpoint) bool { return ep.Name == name }) {
			return false
		}
	}
	return len(l.inPod) > 0
}

// addresses returns the endpoint's own address of each family: what prevResult says first, else what
// the kernel has, since interfaces of some plugins (v4if0, v6if0) have their addresses only there. A
// link-local IPv6 address identifies nobody and is left out.
func (l listing) addresses(ep endpoint) (addr4, addr6 netip.Addr) {
	for _, addrs := range [][]netip.Addr{l.addrs[ep.Name], ep.Addrs} {
		for _, addr := range addrs {
			switch {
			case addr.Is4() && !addr4.IsValid():
				addr4 = addr
			case addr.Is6() && !addr6.IsValid() && !addr.IsLinkLocalUnicast():
				addr6 = addr
			}
		}
	}
	return addr4, addr6
}
