package regress

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"testing"
	"time"

	"github.com/latch-cni/latch/bpf"
	"github.com/latch-cni/latch/shared/testenv"
)

// R2: state belongs to one endpoint and one direction. Two pods of one node are two endpoints: what
// one has let out is not let into the other for that, and an answer is not a permission.
func TestR2StateBelongsToOneEndpointAndDirection(t *testing.T) {
	g := newGround(t, options{})
	a, b, c := g.pod("A", testenv.PodA), g.pod("B", testenv.PodB), g.pod("C", testenv.PodC)
	for _, p := range []*pod{a, b, c} {
		p.publish(nil)
	}
	g.apply("t1/a-eg app=a E\nE B tcp/8080", "t1/b-in app=b I\nI C tcp/8080")
	for _, p := range []*pod{a, b, c} {
		p.add()
	}
	g.listen("B", 8080)

	before := [2]uint64{a.dropsOf(bpf.Egress), b.dropsOf(bpf.Ingress)}
	for range 5 {
		g.expect("1: a SYN that A may send and B must not take, repeated", "A:40000 > B tcp/8080 : deny")
	}
	if got := [2]uint64{a.dropsOf(bpf.Egress) - before[0], b.dropsOf(bpf.Ingress) - before[1]}; got != [2]uint64{0, 10} {
		t.Errorf("1: dropped %d at A and %d at B, want none at A and all 10 at B", got[0], got[1])
	}
	g.exchange("2: C to B", "C", 40000, "B", 8080, 1<<20)

	g.apply("t1/b-in app=b I\nI C tcp/8080\nI A tcp/8080")
	g.becomes("3: b-in gains A", "A > B tcp/8080 : allow")
	g.handshake("A", 40001, "B", 8080)

	g.expect("4: A's egress is isolated", "A:6000 > B udp/6000 : deny")
	g.expect("5: neither B's egress nor A's ingress is", "B:6000 > A udp/6000 : allow")
	g.expect("6: the answer to 5", "A:6000 > B udp/6000 : allow")
	g.expect("7: no answer to anything", "A:6000 > B udp/6001 : deny")
	g.healthy()
}

// exchange sends many bytes both ways over one connection, in each family.
func (g *ground) exchange(what, from string, local uint16, to string, port uint16, size int) {
	g.t.Helper()
	for _, f := range g.pairs(from, to) {
		src, dst := hostPort(f[0], local), hostPort(f[1], port)
		c, err := g.netns(from).DialFrom("tcp", src, dst, arrival)
		if err != nil {
			g.t.Fatalf("%s: %v", what, err)
		}
		if err := echoed(c, size); err != nil {
			g.t.Errorf("%s, %s > %s: %v", what, src, dst, err)
		}
		_ = c.Close()
	}
}

func hostPort(a fmt.Stringer, port uint16) string {
	return net.JoinHostPort(a.String(), fmt.Sprint(port))
}

func echoed(c net.Conn, size int) error {
	_ = c.SetDeadline(time.Now().Add(20 * time.Second))
	want := bytes.Repeat([]byte("latch"), size/5)
	wrote := make(chan error, 1)
	go func() {
		_, err := c.Write(want)
		wrote <- err
	}()
	got := make([]byte, len(want))
	_, err := io.ReadFull(c, got)
	if err := errors.Join(err, <-wrote); err != nil {
		return err
	}
	if !bytes.Equal(got, want) {
		return errors.New("what came back is not what was sent")
	}
	return nil
}
