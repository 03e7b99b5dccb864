package enforce

import (
	"fmt"
	"net"
	"sync/atomic"
	"testing"

	"github.com/latch-cni/latch/bpf"
	"github.com/latch-cni/latch/shared/state"
)

// opener opens flows of the ground's pod, each but once.
type opener struct {
	*ground
	made int
}

// open sends so many datagrams, each from a port of its own. Every 300 the pod is another one, or the most
// would be beyond its share.
func (o *opener) open(n int) {
	o.t.Helper()
	pod := &o.e.objects.pods.At(o.iface.Ifindex & (bpf.PodStateSize - 1)).Pod
	o.pod.MustDo(o.t, func() error {
		for range n {
			if o.made%300 == 0 {
				atomic.AddUint32(pod, 1000)
			}
			o.made++
			c, err := net.DialUDP("udp4", &net.UDPAddr{Port: 1024 + o.made%60000}, &net.UDPAddr{IP: net.ParseIP(nodeAddr), Port: openPort})
			if err != nil {
				return err
			}
			_, err = c.Write([]byte("x"))
			if _ = c.Close(); err != nil {
				return err
			}
		}
		return nil
	})
}

// present counts what is in the tables of IPv4 flows, by looking.
func (g *ground) present() (n int) {
	g.t.Helper()
	for _, t := range []bpf.Table{bpf.TableFlows4, bpf.TableSpill4} {
		it := g.e.objects.maps[t.String()].Iterate()
		for k, v := (bpf.FlowKey4{}), (bpf.Flow{}); it.Next(&k, &v); {
			n++
		}
		if err := it.Err(); err != nil {
			g.t.Fatal(err)
		}
	}
	return n
}

// expired runs Expire and returns the entries of IPv4 flows that Linux has pushed out, and those taken out.
func (g *ground) expired() (pushed, ended int) {
	g.t.Helper()
	if _, err := g.e.Expire(ctx); err != nil {
		g.t.Fatal(err)
	}
	for _, t := range g.e.Tables() {
		if t.Table != bpf.TableFlows4 && t.Table != bpf.TableSpill4 {
			continue
		}
		pushed += int(t.Pushed)
		for _, n := range t.Ended {
			ended += int(n)
		}
	}
	return pushed, ended
}

func newOpener(t *testing.T) *opener {
	o := &opener{ground: newGround(t)}
	o.apply(Request{Identifier: idA, Create: allowPorts(openPort), Bind: []state.Attachment{attachment(o.iface)}})
	return o
}

// Linux says nothing of the entries that it pushes out of a full table; they are counted all the same, each of
// them and no other, also by a process that comes later.
func TestPushedOutFlowsAreCounted(t *testing.T) {
	o := newOpener(t)
	o.open(500)
	if pushed, ended := o.expired(); pushed != 500-o.present()-ended || ended == 0 {
		t.Errorf("%d pushed out, %d taken out, %d are there, of 500", pushed, ended, o.present())
	}
	want := 0
	for i := range 3 {
		o.open(2000)
		pushed, ended := o.expired()
		if pushed != o.made-o.present()-ended {
			t.Errorf("round %d: %d pushed out, %d taken out, %d are there, of %d", i, pushed, ended, o.present(), o.made)
		}
		if pushed < want+500 {
			t.Errorf("round %d: %d pushed out, %d before; the table has room for 1024", i, pushed, want)
		}
		want = pushed
		if err := o.e.Close(); err != nil {
			t.Fatal(err)
		}
		o.ground.open()
	}
	if pushed, _ := o.expired(); pushed != want {
		t.Errorf("%d pushed out with nothing happening, %d before", pushed, want)
	}
}

// What comes and goes while the tables are walked is never taken for pushed out.
func TestPushedOutFlowsUnderTraffic(t *testing.T) {
	o := newOpener(t)
	var walks atomic.Int64
	ended := make(chan error)
	walk := func() error {
		for last := uint64(0); walks.Load() >= 0; walks.Add(1) {
			if _, err := o.e.Expire(ctx); err != nil {
				return err
			}
			now := o.e.Tables()[bpf.TableFlows4].Pushed
			if now < last {
				return fmt.Errorf("%d pushed out, %d before", now, last)
			}
			last = now
		}
		return nil
	}
	go func() { ended <- walk() }()
	for o.made < 6000 || walks.Load() < 10 {
		o.open(300)
	}
	walks.Store(-1 << 32)
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	if pushed, ended := o.expired(); pushed != o.made-o.present()-ended {
		t.Errorf("%d pushed out, %d taken out, %d are there, of %d", pushed, ended, o.present(), o.made)
	}
}

// What another build does to the tables is not counted: neither what it made nor what it took out is taken
// for pushed out later, and counting goes on from there.
func TestPushedOutFlowsAfterAnotherBuild(t *testing.T) {
	o := newOpener(t)
	o.open(2500)
	want, _ := o.expired()
	if want == 0 {
		t.Fatal("nothing was pushed out")
	}
	flows := o.e.objects.maps["flows4"]
	live := func(port uint16) (bpf.FlowKey4, bpf.Flow) {
		pod, _, err := o.e.objects.podState(o.iface.Ifindex)
		if err != nil {
			t.Fatal(err)
		}
		return bpf.FlowKey4{Pod: pod.Pod, Rport: port, Proto: 6}, bpf.Flow{Stamp: bpf.Now(), State: bpf.FlowEstablished}
	}
	took := func(what string, program bool, do func(port uint16)) {
		t.Helper()
		if program {
			o.pinOtherBuild()
			if err := o.e.reopen(ctx); err != nil {
				t.Fatal(err)
			}
		}
		for port := range uint16(200) {
			do(port)
		}
		if program {
			if upgraded, err := o.e.Upgrade(ctx); err != nil || !upgraded {
				t.Fatalf("upgraded %v, %v", upgraded, err)
			}
		}
		if pushed, _ := o.expired(); pushed != want {
			t.Errorf("%s: %d pushed out, want %d", what, pushed, want)
		}
	}
	for _, program := range []bool{true, false} {
		took("made", program, func(port uint16) {
			k, v := live(port)
			if err := flows.Put(k, &v); err != nil {
				t.Fatal(err)
			}
		})
		if program {
			took("taken out", program, func(port uint16) {
				k, _ := live(port)
				if err := flows.Delete(k); err != nil {
					t.Fatal(err)
				}
			})
		}
	}
	o.apply(Request{Identifier: idA, Create: allowPorts(openPort), Verify: true})
	_, before := o.expired()
	there := o.present()
	o.made = 0
	o.open(2500)
	if pushed, ended := o.expired(); pushed-want != o.made+there-o.present()-(ended-before) || pushed == want {
		t.Errorf("%d pushed out, %d before; %d made since, %d there before and %d now", pushed, want, o.made, there, o.present())
	}
}
