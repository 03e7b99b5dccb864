package regress

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/latch-cni/latch/shared/testenv"
)

// racer is a pod that lives again and again in one namespace, each time as a new sandbox.
type racer struct {
	*pod  // of the current life
	g     *ground
	ns    *testenv.NetNS
	spec  testenv.PodSpec
	id    *pod // what its Pod object is made of
	file  string
	lives int
	open  atomic.Bool // ADD has returned and DEL has not begun
}

func (g *ground) newRacer(i, identifiers int) *racer {
	g.t.Helper()
	r := &racer{g: g, ns: testenv.New(g.t), spec: testenv.PodSpec{Namespace: "t1", Name: fmt.Sprintf("race-%d", i),
		Labels: map[string]string{"app": fmt.Sprintf("r%d", i%identifiers)}, Addr4: fmt.Sprintf("10.0.1.%d", 100+i), Addr6: fmt.Sprintf("fd00:10:1::%d", 100+i)}}
	r.id = &pod{Pod: &testenv.Pod{Spec: r.spec}, g: g, uid: "uid-" + r.spec.Name}
	r.file = r.id.file()
	g.names[r.spec.Name] = addrs(r.spec.Addr4, r.spec.Addr6)
	g.ends[r.spec.Name] = &end{name: r.spec.Name, ns: r.ns, in: g.sniff(r.ns)}
	r.id.publish(nil)
	return r
}

// labelled is its Pod object with the labels of one of the identifiers.
func (r *racer) labelled(i int) []byte {
	return r.id.manifest(map[string]string{"app": fmt.Sprintf("r%d", i)}, nil)
}

// begin connects and adds the pod. The runtime tries again what it is asked to.
func (r *racer) begin() error {
	r.lives++
	r.pod = &pod{Pod: r.g.PodIn(r.g.t, r.ns, r.spec), g: r.g, uid: r.id.uid, container: fmt.Sprintf("%s-%d", r.spec.Name, r.lives)}
	e := r.g.ends[r.spec.Name]
	e.mac, e.via = r.MAC, r.HostMAC
	err := r.tryAdd(map[string]any{"policyWait": "20s", "lockTimeout": "20s"})
	if err == nil {
		r.open.Store(true)
	}
	return err
}

func (r *racer) end() error {
	r.open.Store(false)
	_, err := r.tryDel()
	host, linkErr := r.g.Node.Netlink.LinkByName(r.HostName)
	if linkErr == nil {
		linkErr = r.g.Node.Netlink.LinkDel(host)
	}
	return errors.Join(err, linkErr)
}

func (r *racer) live() ([]time.Duration, error) {
	if err := r.begin(); err != nil {
		return nil, fmt.Errorf("ADD: %w", err)
	}
	took := r.took
	if err := r.end(); err != nil {
		return nil, fmt.Errorf("DEL: %w", err)
	}
	return []time.Duration{took}, nil
}

// knockAll sends a SYN from C to every pod that has been added, again and again. C is allowed by no policy,
// whatever labels a pod has. The function that it returns ends it and requires that none has arrived.
func (g *ground) knockAll(all []*racer) (end func()) {
	g.t.Helper()
	r := &rain{stop: make(chan struct{})}
	var sent atomic.Int64
	r.every(20*time.Millisecond, func() {
		for _, racer := range all {
			if !racer.open.Load() {
				continue
			}
			for i, src := range g.names["C"] {
				p := packet{from: "C", to: racer.spec.Name, src: src, dst: g.names[racer.spec.Name][i], proto: "tcp", sport: 20000, dport: 8080, mark: g.mark.Add(1)}
				if g.send(p) == nil {
					sent.Add(1)
				}
			}
		}
	})
	g.t.Cleanup(r.end)
	return func() {
		g.t.Helper()
		r.end()
		for _, racer := range all {
			if n := len(g.ends[racer.spec.Name].in.Frames()); n > 0 {
				g.t.Errorf("%d packets of C arrived at %s", n, racer.spec.Name)
			}
		}
		if sent.Load() == 0 {
			g.t.Error("C has sent nothing")
		}
	}
}
