package enforce

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/google/go-cmp/cmp"

	"github.com/latch-cni/latch/bpf"
	"github.com/latch-cni/latch/shared/state"
)

// Flows that have expired are taken out of the tables, and those of pods that are gone; others stay.
func TestExpire(t *testing.T) {
	g := newGround(t)
	live, ended := g.boundPod(), uint32(0xfffffff0)
	add4 := func(table string, pod uint32, port uint16, proto, state uint8, age time.Duration) func() bool {
		t.Helper()
		key := bpf.FlowKey4{Pod: pod, Remote: 1, Rport: port, Proto: proto}
		g.put(table, key, bpf.Flow{Stamp: bpf.Now() - bpf.Stamp(age), State: state})
		return func() bool { return g.has(table, key) }
	}
	addFrag := func(table string, pod, id uint32, age time.Duration) func() bool {
		key := bpf.FragKey{Pod: pod, Id: id}
		g.put(table, key, bpf.Frag{Stamp: bpf.Now() - bpf.Stamp(age)})
		return func() bool { return g.has(table, key) }
	}
	const tcp, udp, sctp = 6, 17, 132
	cases := []struct {
		name  string
		there func() bool
		stays bool
	}{
		{"udp, just sent", add4("flows4", live, 1, udp, bpf.FlowNew, 0), true},
		{"udp, of a clock that is ahead", add4("flows4", live, 2, udp, bpf.FlowNew, -100*time.Millisecond), true},
		{"udp, unanswered for long", add4("flows4", live, 3, udp, bpf.FlowNew, 31*time.Second), false},
		{"udp, answered", add4("flows4", live, 4, udp, bpf.FlowEstablished, 31*time.Second), true},
		{"udp, answered long ago", add4("flows4", live, 5, udp, bpf.FlowEstablished, 181*time.Second), false},
		{"tcp", add4("flows4", live, 6, tcp, bpf.FlowEstablished, 5*time.Hour), true},
		{"tcp, ended", add4("flows4", live, 7, tcp, bpf.FlowClosing, 31*time.Second), false},
		{"tcp, just ended", add4("flows4", live, 8, tcp, bpf.FlowClosing, 10*time.Second), true},
		{"sctp", add4("flows4", live, 9, sctp, bpf.FlowNew, 181*time.Second), false},
		{"beyond the share", add4("spill4", live, 10, udp, bpf.FlowNew, 31*time.Second), false},
		{"of a pod that is gone", add4("flows4", ended, 11, udp, bpf.FlowNew, 0), false},
		{"fragment", addFrag("frags", live, 1, 0), true},
		{"fragment, old", addFrag("frags", live, 2, 31*time.Second), false},
		{"fragment beyond the share, old", addFrag("frag_spill", live, 3, 31*time.Second), false},
		{"fragment of a pod that is gone", addFrag("frags", ended, 4, 0), false},
	}
	cut := bpf.FlowKey4{Pod: live, Rport: 12, Proto: tcp}
	g.put("flows4", cut, bpf.Flow{Stamp: bpf.Now() - bpf.Stamp(25*time.Hour), State: bpf.FlowEstablished, Flags: bpf.FlowCut})
	six := bpf.FlowKey6{Pod: live, Proto: udp}
	g.put("flows6", six, bpf.Flow{Stamp: bpf.Now() - bpf.Stamp(time.Minute)})
	n, err := g.e.Expire(context.Background())
	if err != nil || n != 11 {
		t.Errorf("%d entries expired, error %v, want 11", n, err)
	}
	if diff := cmp.Diff(map[string]string{
		"flows4": "5 live, 3 expired, 1 closed, 1 policy, 1 pod-gone", "spill4": "0 live, 1 expired", "flows6": "0 live, 1 expired",
		"spill6": "0 live", "frags": "1 live, 1 expired, 1 pod-gone", "frag_spill": "0 live, 1 expired",
	}, g.tables()); diff != "" {
		t.Errorf("tables (-want +got):\n%s", diff)
	}
	for _, c := range cases {
		if c.there() != c.stays {
			t.Errorf("%s: is there %v, want %v", c.name, c.there(), c.stays)
		}
	}
	if g.has("flows6", six) {
		t.Error("an IPv6 flow has not expired")
	}
}

// In a crowded table connections that are ending make room for others.
func TestExpireCrowded(t *testing.T) {
	g := newGround(t)
	live := g.boundPod()
	for i := range uint16(900) { // of 1024
		state := uint8(bpf.FlowEstablished)
		if i%3 == 0 {
			state = bpf.FlowClosing
		}
		g.put("flows4", bpf.FlowKey4{Pod: live, Rport: i, Proto: 6}, bpf.Flow{Stamp: bpf.Now() - bpf.Stamp(10*time.Second), State: state})
	}
	for _, want := range []int{300, 0} {
		if n, err := g.e.Expire(context.Background()); err != nil || n != want {
			t.Errorf("%d flows expired, error %v, want %d", n, err, want)
		}
	}
	if got, want := g.tables()["flows4"], "600 live, 300 crowded"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// boundPod starts the pod and returns its id.
func (g *ground) boundPod() uint32 {
	g.t.Helper()
	g.apply(Request{Identifier: idA, Create: allowPorts(openPort), Bind: []state.Attachment{attachment(g.iface)}})
	p, bound, err := g.e.objects.podState(g.iface.Ifindex)
	if err != nil || !bound {
		g.t.Fatalf("bound %v, error %v", bound, err)
	}
	return p.Pod
}

// tables tells what Expire has found, in words.
func (g *ground) tables() map[string]string {
	words := map[string]string{}
	for _, t := range g.e.Tables() {
		said := []string{fmt.Sprintf("%d live", t.Live)}
		for _, end := range bpf.Ends() {
			if n := t.Ended[end]; n > 0 {
				said = append(said, fmt.Sprintf("%d %s", n, end))
			}
		}
		words[t.Table.String()] = strings.Join(said, ", ")
	}
	return words
}

func (g *ground) put(table string, key, value any) {
	g.t.Helper()
	if err := g.e.objects.maps[table].Put(key, value); err != nil {
		g.t.Fatal(err)
	}
}

func (g *ground) has(table string, key any) bool {
	g.t.Helper()
	m := g.e.objects.maps[table]
	err := m.Lookup(key, make([]byte, m.ValueSize()))
	if err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
		g.t.Fatal(err)
	}
	return err == nil
}
