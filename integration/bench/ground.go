package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"time"

	current "github.com/containernetworking/cni/pkg/types/100"
	"github.com/vishvananda/netlink"

	"github.com/latch-cni/latch/integration/harness"
	"github.com/latch-cni/latch/shared/state"
)

const (
	hostVeth  = "benchveth"
	container = "bench-1"
	sandboxIf = "eth0"
)

// peers is how many blocks the pod's policy has. ADD does not depend on it: it is there to show that.
const peers = 1000

var (
	podAddr  = netip.MustParseAddr("10.0.1.11")
	nodeAddr = netip.MustParseAddr("10.0.0.10")
	pod      = harness.Pod{Namespace: "shop", Name: "web-1", UID: "uid-1", Addrs: []netip.Addr{podAddr}}
	// A node has other pods. The first interface with a hook, anybody's, has the kernel patch its own code,
	// which takes it as long as all else about the interface.
	neighbour = harness.Pod{Namespace: "shop", Name: "db-1", UID: "uid-2", Addrs: []netip.Addr{netip.MustParseAddr("10.0.1.12")}}
)

// ground is a node whose latchd has prepared the pod's identifier, and the pod's sandbox. The interface
// between them is made anew for each run.
type ground struct {
	bin     *harness.Binaries
	node    *harness.Node
	sandbox *harness.NetNS
}

// useBinaries takes released binaries, which must be there.
func useBinaries(dir string) error {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	if _, err := os.Stat(filepath.Join(dir, "latch")); err != nil {
		return fmt.Errorf("released binaries (make build): %w", err)
	}
	return os.Setenv(harness.BinariesEnv, dir)
}

// install puts a copy in place of each program, which is how a node gets them. Where a program is as its
// linker left it, the page cache holds it in small pages, and each process of it pays for that.
func install(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		program, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if err := errors.Join(os.Remove(path), os.WriteFile(path, program, 0o755)); err != nil {
			return err
		}
	}
	return nil
}

func newGround(ctx context.Context, b *harness.Binaries) (*ground, error) {
	g := &ground{bin: b}
	var err error
	if g.node, err = harness.NewNode(harness.Config{Name: "bench", Addrs: []netip.Addr{nodeAddr}, Binaries: b}); err != nil {
		return nil, err
	}
	if err := g.prepare(ctx); err != nil {
		return nil, errors.Join(err, g.close(ctx))
	}
	return g, nil
}

func (g *ground) prepare(ctx context.Context) (err error) {
	if g.sandbox, err = harness.NewNetNS(g.node.Dir, "sandbox"); err != nil {
		return err
	}
	manifests := slices.Concat(g.node.PodManifest(pod, map[string]string{"app": "web"}), policy(),
		g.node.PodManifest(neighbour, map[string]string{"app": "db"}))
	if err := g.node.WriteManifest("bench.yaml", manifests); err != nil {
		return err
	}
	if err := g.node.StartLatchd(); err != nil {
		return err
	}
	err = harness.Eventually(ctx, 20*time.Second, func() error {
		_, err := state.New(g.node.StateDir).ReadPod(pod.Namespace, pod.Name)
		return errors.Join(err, g.node.Latchd.Running())
	})
	if err != nil {
		return err
	}
	_, err = g.node.AddPod(ctx, neighbour)
	return err
}

func policy() []byte {
	text := `---
apiVersion: networking.k8s.aws/v1alpha1
kind: PolicyEndpoint
metadata: {namespace: shop, name: web}
spec:
  policyRef: {namespace: shop, name: web}
  podSelector: {matchLabels: {app: web}}
  podIsolation: [Ingress, Egress]
  egress: [{cidr: 0.0.0.0/0}]
  ingress:
`
	for i := range peers {
		text += fmt.Sprintf("  - {cidr: 10.20.%d.%d/32, ports: [{protocol: TCP, port: 80}]}\n", i/250, i%250)
	}
	return []byte(text)
}

func (g *ground) close(ctx context.Context) error {
	var errs []error
	if g.sandbox != nil {
		errs = append(errs, g.sandbox.Close())
	}
	return errors.Join(append(errs, g.node.Stop(ctx))...)
}

// round runs every contestant once, each on a new interface.
func (g *ground) round(all []*contestant) error {
	for _, i := range rand.Perm(len(all)) {
		c := all[i]
		prev, err := g.connect()
		if err != nil {
			return err
		}
		if err := errors.Join(c.run(g, prev), g.disconnect()); err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
	}
	return nil
}

// connect makes what a main plugin makes, and its result.
func (g *ground) connect() (*current.Result, error) {
	ns, err := os.Open(g.sandbox.Path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = ns.Close() }()
	err = g.node.NS.Do(func() error {
		attrs := netlink.NewLinkAttrs()
		attrs.Name = hostVeth
		v := &netlink.Veth{LinkAttrs: attrs, PeerName: sandboxIf, PeerNamespace: netlink.NsFd(ns.Fd())}
		if err := netlink.LinkAdd(v); err != nil {
			return fmt.Errorf("add veth: %w", err)
		}
		return netlink.LinkSetUp(v)
	})
	if err == nil {
		err = g.sandbox.Do(func() error {
			l, err := netlink.LinkByName(sandboxIf)
			if err != nil {
				return err
			}
			return errors.Join(netlink.LinkSetUp(l), netlink.AddrAdd(l, &netlink.Addr{IPNet: hostNet(podAddr)}))
		})
	}
	if err != nil {
		return nil, fmt.Errorf("connect the pod: %w", err)
	}
	inside := 1
	return &current.Result{
		CNIVersion: "1.0.0",
		Interfaces: []*current.Interface{{Name: hostVeth}, {Name: sandboxIf, Sandbox: g.sandbox.Path}},
		IPs:        []*current.IPConfig{{Interface: &inside, Address: *hostNet(podAddr)}},
	}, nil
}

func (g *ground) disconnect() error {
	return g.node.NS.Do(func() error {
		l, err := netlink.LinkByName(hostVeth)
		if err != nil {
			return err
		}
		return netlink.LinkDel(l)
	})
}

func hostNet(a netip.Addr) *net.IPNet {
	return &net.IPNet{IP: a.AsSlice(), Mask: net.CIDRMask(a.BitLen(), a.BitLen())}
}
