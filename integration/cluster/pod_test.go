package cluster

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"time"

	"github.com/latch-cni/latch/integration/harness"
)

// pod is a Pod object bound to the node, and its sandbox once it is added.
type pod struct {
	*harness.Sandbox
	n         *node
	name, uid string
	addrs     []netip.Addr
	created   time.Time // just before the request
}

// pod creates a Pod object that is bound to the node. The chain is not called.
func (n *node) pod(name string, labels object) *pod {
	n.t.Helper()
	p := &pod{n: n, name: name}
	p.create(labels)
	return p
}

// create creates the Pod object, with a new uid. The next sandbox has new addresses.
func (p *pod) create(labels object) {
	p.n.t.Helper()
	p.n.next++
	p.addrs = []netip.Addr{
		netip.AddrFrom4([4]byte{198, 18, 64 + byte(p.n.next>>8), byte(p.n.next)}),
		netip.MustParseAddr(fmt.Sprintf("fd00:18:64::%x", p.n.next)),
	}
	var out struct{ Metadata struct{ UID string } }
	p.created = time.Now()
	p.n.must(p.n.cp.create(p.n.podsPath(), object{"apiVersion": "v1", "kind": "Pod",
		"metadata": object{"name": p.name, "namespace": p.n.ns, "labels": labels},
		"spec": object{"nodeName": p.n.Name(), "automountServiceAccountToken": false, "terminationGracePeriodSeconds": 30,
			"containers": []object{{"name": "c", "image": "none.test/none"}}}}, &out))
	p.uid = out.Metadata.UID
}

func (n *node) podsPath() string { return "/api/v1/namespaces/" + n.ns + "/pods" }

func (p *pod) path() string { return p.n.podsPath() + "/" + p.name }

func (p *pod) harnessPod() harness.Pod {
	return harness.Pod{Namespace: p.n.ns, Name: p.name, UID: p.uid, Addrs: p.addrs}
}

// add runs the chain, which must succeed, and reports the addresses as kubelet does.
func (p *pod) add() *pod {
	p.n.t.Helper()
	p.n.must(p.tryAdd())
	ips := []object{}
	for _, a := range p.addrs {
		ips = append(ips, object{"ip": a.String()})
	}
	p.n.must(p.n.cp.merge(p.path()+"/status", object{"status": object{
		"phase": "Running", "podIP": p.addrs[0].String(), "podIPs": ips, "hostIP": nodeAddrs[0].String()}}))
	return p
}

func (p *pod) tryAdd() (err error) {
	p.Sandbox, err = p.n.AddPod(context.Background(), p.harnessPod())
	return err
}

// del runs DEL and takes the sandbox away.
func (p *pod) del() {
	p.n.t.Helper()
	p.n.must(p.n.DelPod(context.Background(), p.Sandbox))
	p.Sandbox = nil
}

// relabel replaces labels of the Pod object; nil takes one away.
func (p *pod) relabel(labels object) {
	p.n.t.Helper()
	p.n.must(p.n.cp.merge(p.path(), object{"metadata": object{"labels": labels}}))
}

// forget deletes the Pod object at once.
func (p *pod) forget() {
	p.n.t.Helper()
	p.n.must(p.n.cp.remove(p.path()))
}

// terminate deletes the Pod object as a user does: it stays until the pod has ended.
func (p *pod) terminate() {
	p.n.t.Helper()
	p.n.must(p.n.cp.do("DELETE", p.path(), "application/json", nil, nil))
}

// published returns when the record of this very pod was published, and an error if it is not.
func (p *pod) published() (time.Time, error) {
	rec, err := p.n.store().ReadPod(p.n.ns, p.name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return time.Time{}, fmt.Errorf("pod %s has no record", p.name)
	case err != nil:
		return time.Time{}, err
	case rec.UID != p.uid:
		return time.Time{}, fmt.Errorf("pod %s has a record of uid %q, want %q", p.name, rec.UID, p.uid)
	}
	return rec.PublishedAt, nil
}

func (p *pod) awaitRecord() time.Time {
	p.n.t.Helper()
	var at time.Time
	p.n.eventually(inForce, func() (err error) {
		at, err = p.published()
		return err
	})
	return at
}

// tryReAdd ends the sandbox and makes another, for the same Pod object.
func (p *pod) tryReAdd() error {
	p.n.t.Helper()
	p.del()
	return p.tryAdd()
}
