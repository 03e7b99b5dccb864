package stage

import (
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/latch-cni/latch/integration/harness"
)

// Pod is a sandbox of a pod.
type Pod struct {
	harness.Pod
	Labels    map[string]string
	Container string
	HostName  string
	Ifindex   int    // of the host end
	Path      string // of its namespace
	Out       Counts // arrived outside
	In        Counts // arrived in the pod, from outside
	Entry     map[string]any

	s      *Stage
	number uint32
	send   *sender
	in     io.Closer
	gone   atomic.Bool
}

// Namespace is where all pods are.
const Namespace = "soak"

// NewPod makes a sandbox and connects it. The plugin has not run for it.
func (s *Stage) NewPod(name string, labels map[string]string) (*Pod, error) {
	s.mu.Lock()
	n := uint32(len(s.pods))
	p := &Pod{s: s, number: n, Labels: labels, Container: fmt.Sprintf("c%d", n), HostName: fmt.Sprintf("lp%d", n)}
	s.pods = append(s.pods, p)
	s.mu.Unlock()
	p.Pod = harness.Pod{Namespace: Namespace, Name: name, UID: fmt.Sprintf("uid-%d", n), Addrs: []netip.Addr{podAddr(n)}}
	p.Path = filepath.Join(s.dir, p.Container)
	if err := p.make(); err != nil {
		return nil, errors.Join(fmt.Errorf("make sandbox of pod %s: %w", name, err), p.Drop())
	}
	return p, nil
}

// podAddr numbers the addresses of 10.240.0.0/12.
func podAddr(n uint32) netip.Addr {
	n++
	return netip.AddrFrom4([4]byte{10, byte(240 + n>>16&0xf), byte(n >> 8), byte(n)})
}

func (p *Pod) make() error {
	if err := makeNetNS(p.Path); err != nil {
		return err
	}
	if err := p.s.link(p.Path, p.HostName, "eth0", p.Addr()); err != nil {
		return err
	}
	err := p.s.OnNode(func() error {
		l, err := netlink.LinkByName(p.HostName)
		if err == nil {
			p.Ifindex = l.Attrs().Index
		}
		return err
	})
	if err != nil {
		return err
	}
	return within(p.Path, func() (err error) {
		if p.send, err = newSender(); err != nil {
			return err
		}
		p.in, err = p.s.count(func(d datagram) {
			if d.pod == p.number {
				p.In.count(d.port)
			}
		})
		return err
	})
}

// Addr is the pod's address.
func (p *Pod) Addr() netip.Addr { return p.Addrs[0] }

// Send sends a datagram of the pod to the outside.
func (p *Pod) Send(port uint16) error { return p.send.send(p.number, p.Addr(), ExtAddr, port) }

// Receive sends a datagram from the outside to the pod.
func (p *Pod) Receive(port uint16) error { return p.s.out.send(p.number, ExtAddr, p.Addr(), port) }

// Drop ends the sandbox, without DEL. Safe to call again.
func (p *Pod) Drop() error {
	if !p.gone.CompareAndSwap(false, true) {
		return nil
	}
	var errs []error
	if p.in != nil {
		errs = append(errs, p.in.Close())
	}
	if p.send != nil {
		errs = append(errs, p.send.Close())
	}
	errs = append(errs, p.s.dropLink(p.HostName))
	if _, err := os.Stat(p.Path); err == nil {
		errs = append(errs, removeNetNS(p.Path))
	}
	return errors.Join(errs...)
}

// Publish writes the Pod object.
func (p *Pod) Publish() error { return p.PublishAs(p.Labels) }

// PublishAs writes the Pod object with other labels than the pod has.
func (p *Pod) PublishAs(labels map[string]string) error {
	return p.s.Node.WriteManifest(p.file(), p.s.Node.PodManifest(p.Pod, labels))
}

// Withdraw deletes the Pod object.
func (p *Pod) Withdraw() error { return p.s.Node.RemoveManifest(p.file()) }

func (p *Pod) file() string { return "pod-" + p.Name + ".json" }

// Start makes a pod that is in force: sandbox, object, ADD.
func (s *Stage) Start(name string, labels map[string]string, entry map[string]any) (*Pod, error) {
	p, err := s.NewPod(name, labels)
	if err != nil {
		return nil, err
	}
	p.Entry = entry
	if err := p.Publish(); err != nil {
		return nil, err
	}
	if _, err := p.Add(); err != nil {
		return nil, err
	}
	return p, nil
}

// Obeys tells by traffic whether both directions of the pod judge as policies of this harness say: it
// returns what does not. One datagram is sent at a time and waited for.
func (p *Pod) Obeys(patience time.Duration) error {
	for _, way := range []struct {
		name string
		send func(uint16) error
		got  *Counts
	}{{"from the pod", p.Send, &p.Out}, {"to the pod", p.Receive, &p.In}} {
		never := way.got.Of(Never)
		if err := errors.Join(way.send(Never), arrives(way.send, way.got, Always, patience)); err != nil {
			return fmt.Errorf("pod %s: %s: %w", p.Name, way.name, err)
		}
		// It was sent before one that has arrived.
		if way.got.Of(Never) != never {
			return fmt.Errorf("pod %s: %s: a datagram to port %d arrived", p.Name, way.name, Never)
		}
	}
	return nil
}

// arrives sends datagrams until one arrives.
func arrives(send func(uint16) error, got *Counts, port uint16, patience time.Duration) error {
	before := got.Of(port)
	for deadline := time.Now().Add(patience); ; {
		if err := send(port); err != nil {
			return err
		}
		for range 10 {
			if got.Of(port) != before {
				return nil
			}
			time.Sleep(time.Millisecond)
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("no datagram to port %d arrived", port)
		}
	}
}
