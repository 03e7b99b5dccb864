package regress

import (
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/latch-cni/latch/bpf"
	"github.com/latch-cni/latch/shared/testenv"
)

// The policy of R1: what a pod may do is small, and all of it must work at once.
const r1Policy = `t1/start app=a IE
	E web tcp/443
	E D udp/53 tcp/53
	I B tcp/8080`

// addTarget is what the 99th of a hundred ADDs may take.
const addTarget = 100 * time.Millisecond

// R1: right from the first packet. The moment that ADD returns, every packet of the table is sent.
// Several pods live side by side, some of one identifier, so that a thousand lives with an answer that
// comes 300 ms late take a minute.
func TestR1RightFromTheFirstPacket(t *testing.T) {
	lives, pods := 1000, 10
	if testing.Short() {
		lives = 2 * pods
	}
	g := newGround(t, options{})
	g.start("B", testenv.PodB)
	g.start("C", testenv.PodC)
	g.start("D", testenv.PodD)
	g.apply(r1Policy)
	g.listen("web", 443)
	g.slowDNS(300 * time.Millisecond)

	var all []*life
	for i := range pods {
		all = append(all, g.newLife(i))
	}
	denied := func() uint64 {
		return g.counted(func(k bpf.CounterKey) bool { return k.Allow == 0 && k.Slot >= bpf.FirstSlot && k.Slot < bpf.MaxSlots })
	}
	before := denied()
	var wg sync.WaitGroup
	for _, l := range all {
		wg.Go(func() {
			for range lives / pods {
				if err := l.live(); err != nil {
					t.Errorf("%s: %v", l.spec.Name, err)
					return
				}
			}
		})
	}
	wg.Wait()
	var took []time.Duration
	for _, l := range all {
		took = append(took, l.took...)
	}
	if t.Failed() {
		return
	}
	// The packets that must be denied are counted as denied, and no other one is.
	if got, want := denied()-before, uint64(len(took)*deniedPerLife); got != want {
		t.Errorf("%d packets were dropped, want the %d of the table", got, want)
	}
	t.Logf("%d lives, %d at a time: ADD %s", len(took), pods, percentiles(took))
	if p99 := took[int(0.99*float64(len(took)-1))]; p99 > addTarget {
		t.Logf("ADD p99 is %v, target %v", p99, addTarget)
	}
	g.healthy()
}

// slowDNS answers datagrams at D, some time after they came.
func (g *ground) slowDNS(delay time.Duration) {
	g.t.Helper()
	for _, a := range g.names["D"] {
		c := g.ends["D"].ns.PacketConn(g.t, netip.AddrPortFrom(a, 53).String())
		go func() {
			for b := make([]byte, 512); ; {
				n, from, err := c.ReadFrom(b)
				if err != nil {
					return
				}
				answer := append([]byte(nil), b[:n]...)
				time.AfterFunc(delay, func() { _, _ = c.WriteTo(answer, from) })
			}
		}()
	}
}

// life is a pod that is added and deleted again and again. It does what R1 says in each life.
type life struct {
	g    *ground
	ns   *testenv.NetNS
	spec testenv.PodSpec
	raw  [2]int // sockets in the pod, by family, that send packets as they are
	n    int
	took []time.Duration
}

func (g *ground) newLife(i int) *life {
	g.t.Helper()
	l := &life{g: g, ns: testenv.New(g.t), spec: testenv.PodSpec{Namespace: "t1", Name: fmt.Sprintf("a-7c9d-x%d", i),
		Labels: map[string]string{"app": "a", "shard": fmt.Sprint(i % 4)}, Addr4: fmt.Sprintf("10.0.1.%d", 100+i), Addr6: fmt.Sprintf("fd00:10:1::%d", 100+i)}}
	for i, family := range []int{unix.AF_INET, unix.AF_INET6} {
		l.ns.MustDo(g.t, func() (err error) {
			l.raw[i], err = unix.Socket(family, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_RAW)
			return err
		})
		g.t.Cleanup(func() { _ = unix.Close(l.raw[i]) })
	}
	g.ends[l.spec.Name] = &end{name: l.spec.Name, ns: l.ns, in: g.sniff(l.ns)}
	l.serve()
	p := &pod{Pod: &testenv.Pod{Spec: l.spec}, g: g, uid: "uid-" + l.spec.Name}
	p.publish(nil)
	return l
}

func (l *life) live() error {
	l.n++
	p := &pod{Pod: l.g.PodIn(l.g.t, l.ns, l.spec), g: l.g, uid: "uid-" + l.spec.Name,
		container: fmt.Sprintf("%s-%d", l.spec.Name, l.n)}
	if err := p.tryAdd(nil); err != nil {
		return fmt.Errorf("ADD: %w", err)
	}
	l.took = append(l.took, p.took)
	errs := []error{l.table(p)}
	_, err := p.tryDel()
	errs = append(errs, err)
	host, err := l.g.Node.Netlink.LinkByName(p.HostName)
	if err == nil {
		err = l.g.Node.Netlink.LinkDel(host)
	}
	return errors.Join(append(errs, err)...)
}
