package view_test

import (
	"errors"
	"fmt"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/latch-cni/latch/bpf"
	"github.com/latch-cni/latch/shared/attach"
	"github.com/latch-cni/latch/shared/enforce"
	"github.com/latch-cni/latch/shared/identity"
	"github.com/latch-cni/latch/shared/pins"
	"github.com/latch-cni/latch/shared/policy"
	"github.com/latch-cni/latch/shared/state"
	"github.com/latch-cni/latch/shared/testenv"
	"github.com/latch-cni/latch/shared/view"
)

func TestPodsInForce(t *testing.T) {
	g := newGround(t)
	b := g.pod(testenv.PodB)
	if b.State != view.StateEnforced || !b.Healthy || len(b.Problems) > 0 {
		t.Errorf("pod B is %s, healthy %v, problems %v", b.State, b.Healthy, b.Problems)
	}
	if diff := cmp.Diff([]view.Policy{{Kind: "NetworkPolicy", Namespace: "t1", Name: "db"}}, b.Policies); diff != "" {
		t.Errorf("policies of pod B: %s", diff)
	}
	if !b.Ingress.Isolated || !b.Egress.Isolated || b.Ingress.String() != "isolated" {
		t.Errorf("pod B: ingress %s, egress %s, want both isolated", b.Ingress, b.Egress)
	}
	if len(b.Interfaces) != 1 || !b.Interfaces[0].ToPod.Effective || !b.Interfaces[0].FromPod.Effective || !b.Interfaces[0].Bound {
		t.Errorf("interfaces of pod B: %+v", b.Interfaces)
	}
	if b.Generation == 0 || b.Since == nil {
		t.Errorf("generation %d since %v", b.Generation, b.Since)
	}
	a := g.pod(testenv.PodA)
	if a.State != view.StateEnforced || a.Ingress.String() != "open" || a.Egress.String() != "open" || a.Slot == b.Slot {
		t.Errorf("pod A is %s in slot %d, ingress %s, egress %s", a.State, a.Slot, a.Ingress, a.Egress)
	}
	g.look(func(n *view.Node) error {
		if _, err := n.Pod("t1", "nobody"); !errors.Is(err, view.ErrNoPod) {
			t.Errorf("unknown pod: %v", err)
		}
		r, err := n.Audit()
		if len(r.Problems) > 0 || r.Attachments != 2 || r.Interfaces != 2 || r.Slots != 2 {
			t.Errorf("audit of what is in order: %+v", r)
		}
		return err
	})
}

// Whatever is taken away or changed in the kernel, or in a record, is seen, and its kind named.
func TestDivergence(t *testing.T) {
	tests := []struct {
		name   string
		damage func(g *ground) error
		kind   string
	}{
		{"a program is detached", func(g *ground) error {
			return attach.Detach(g.b.HostIfindex, attach.ToPod, "")
		}, view.KindHook},
		{"the interface is gone", func(g *ground) error {
			g.Node.DelLink(g.t, g.b.HostName)
			return nil
		}, view.KindGone},
		{"the binding is gone", func(g *ground) error {
			return g.editPodState(func(words []uint32) { words[0] = 0 })
		}, view.KindBinding},
		{"bound to other rules", func(g *ground) error {
			return g.editPodState(func(words []uint32) { words[1] = 0 })
		}, view.KindBinding},
		{"the source check is put on", func(g *ground) error {
			return g.editPodState(func(words []uint32) { words[3] = bpf.PodAntispoof })
		}, view.KindBinding},
		{"an attachment was begun and not finished", func(g *ground) error {
			return g.editAttachment(func(a *state.Attachment) { a.Phase = state.PhaseIntent })
		}, view.KindRecord},
		{"the record names other rules", func(g *ground) error {
			rec, err := g.e.Store().ReadIdentifier(idB)
			if err != nil {
				return err
			}
			rec.Create.Hash = "00" + rec.Create.Hash[2:]
			rec.Running = rec.Create
			return g.e.Store().WriteIdentifier(rec)
		}, view.KindRules},
		{"the record of the identifier is lost", func(g *ground) error {
			return g.e.Store().DeleteIdentifier(idB)
		}, view.KindRecord},
		{"a map is not pinned", func(g *ground) error {
			return os.Remove(pins.New(g.cfg.Bpffs).Map("counters"))
		}, view.KindPin},
		{"the record of the attachment is lost", func(g *ground) error {
			return g.e.Store().DeleteAttachment("c-"+testenv.PodB.Name, "eth0")
		}, view.KindOrphan},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			g := newGround(t)
			g.onNode(func() error { return test.damage(g) })
			g.look(func(n *view.Node) error {
				r, err := n.Audit()
				if err != nil {
					return err
				}
				for _, p := range r.Problems {
					if p.Kind == test.kind {
						return nil
					}
				}
				return fmt.Errorf("no problem of kind %s is found, but %v", test.kind, r.Problems)
			})
		})
	}
}

func (g *ground) editAttachment(edit func(*state.Attachment)) error {
	a, err := g.e.Store().ReadAttachment("c-"+testenv.PodB.Name, "eth0")
	if err != nil {
		return err
	}
	edit(&a)
	return g.e.Store().WriteAttachment(a)
}

// editPodState changes the first words of pod B's pod_state: ifindex, slot.
func (g *ground) editPodState(edit func(words []uint32)) error {
	m, err := pins.LoadMap(pins.New(g.cfg.Bpffs).Map("pod_state"), nil)
	if err != nil {
		return err
	}
	defer m.Close()
	words := make([]uint32, 16)
	index := uint32(g.b.HostIfindex & 0xffff)
	if err := m.Lookup(index, &words); err != nil {
		return err
	}
	edit(words)
	return m.Put(index, words)
}

func TestExpectedAndPrepared(t *testing.T) {
	g := newGround(t)
	for _, test := range []struct {
		name     string
		labels   string
		prepared bool
	}{{"later", "prepared", true}, {"unknown", "not prepared", false}} {
		rec := state.PodRecord{Namespace: "t1", Name: test.name, Identifier: idB}
		want := view.StatePrepared
		if !test.prepared {
			rec.Identifier, want = idNone, view.StateExpected
		}
		if err := g.e.Store().WritePod(rec); err != nil {
			t.Fatal(err)
		}
		p := g.pod(testenv.PodSpec{Namespace: "t1", Name: test.name})
		if p.State != want || !p.Healthy {
			t.Errorf("%s: %s, healthy %v, want %s", test.labels, p.State, p.Healthy, want)
		}
	}
}

// An attachment that is in order and bound as another identifier than its pod's is found; one of a pod that was
// replaced by another of its name is not.
func TestBoundAsAnother(t *testing.T) {
	g := newGround(t)
	b := g.b.Spec
	record := func(uid string, id identity.Identifier) {
		t.Helper()
		if err := g.e.Store().WritePod(state.PodRecord{Namespace: b.Namespace, Name: b.Name, UID: uid, Identifier: id}); err != nil {
			t.Fatal(err)
		}
	}
	audit := func() (problems []view.Problem) {
		g.look(func(n *view.Node) error {
			r, err := n.Audit()
			problems = r.Problems
			return err
		})
		return problems
	}
	if err := g.editAttachment(func(a *state.Attachment) { a.PodUID = "u1" }); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name, uid string
		id        identity.Identifier
		want      int
	}{
		{"as recorded", "u1", idB, 0}, {"another", "u1", idA, 1}, {"of a pod without uid", "", idA, 1}, {"of a later pod", "u2", idA, 0},
	} {
		record(test.uid, test.id)
		got := audit()
		if len(got) != test.want || test.want > 0 && (got[0].Kind != view.KindRecord || got[0].Object != b.Namespace+"/"+b.Name) {
			t.Errorf("%s: %v, want %d problems", test.name, got, test.want)
		}
	}
}

// A pod that latchd could not take over runs without policy, whatever is prepared for it; until its ADD.
func TestNotAdopted(t *testing.T) {
	g := newGround(t)
	said := state.Status{NotAdopted: []state.NotAdopted{{Namespace: "t1", Name: "lost", Reason: "no route"},
		{Namespace: g.b.Spec.Namespace, Name: g.b.Spec.Name, Reason: "no route"}, {Namespace: "t1", Name: "deleted since", Reason: "no route"}}}
	if err := errors.Join(g.e.Store().WriteStatus(said), g.e.Store().WritePod(state.PodRecord{Namespace: "t1", Name: "lost", Identifier: idB})); err != nil {
		t.Fatal(err)
	}
	if p := g.pod(testenv.PodSpec{Namespace: "t1", Name: "lost"}); p.State != view.StateNotAdopted || p.Healthy || len(p.Problems) != 1 {
		t.Errorf("not adopted: %+v", p)
	}
	if p := g.pod(g.b.Spec); p.State != view.StateEnforced || !p.Healthy {
		t.Errorf("added since: %+v", p)
	}
	g.look(func(n *view.Node) error {
		r, err := n.Audit()
		if len(r.Problems) != 1 || r.Problems[0].Kind != view.KindNotAdopted || r.Problems[0].Object != "t1/lost" {
			t.Errorf("problems %+v", r.Problems)
		}
		return err
	})
}

func TestDefaults(t *testing.T) {
	g := newGround(t)
	for name, want := range map[string]view.State{"allow": view.StateDefaultAllow, "deny": view.StateDefaultDeny} {
		c := g.Pod(t, testenv.PodSpec{Namespace: "t2", Name: name, HostName: "h" + name})
		id := idOfName("t2", name)
		g.onNode(func() error {
			held, err := g.e.Lock(ctx, id)
			if err != nil {
				return err
			}
			_, err = g.e.Apply(ctx, held, enforce.Request{Identifier: id, Default: name, Bind: []state.Attachment{{
				ContainerID: "c-" + name, IfName: "eth0", PodNamespace: "t2", PodName: name,
				Interfaces: []state.Interface{{Ifindex: c.HostIfindex, Name: c.HostName}}}}})
			return errors.Join(err, held.Release())
		})
		p := g.pod(c.Spec)
		if p.State != want || !p.Healthy || p.Ingress.Default.Verdict != name || p.Ingress.Isolated {
			t.Errorf("default %s: %s, problems %v, ingress %+v", name, p.State, p.Problems, p.Ingress)
		}
		g.look(func(n *view.Node) error {
			rules, err := n.Rules(p)
			if len(rules) != 2 || rules[0].Verdict != name || rules[0].Tier != policy.TierDefault.String() {
				t.Errorf("rules of default %s: %+v", name, rules)
			}
			return err
		})
	}
}

func TestNothingThere(t *testing.T) {
	testenv.RequireRoot(t)
	n, err := view.Open(testenv.BPFFS(t), testenv.StateDir(t))
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	s, err := n.Status()
	if err != nil || s.Maps+s.Progs != 0 || len(s.Missing) == 0 || s.Watcher.Running {
		t.Errorf("status of an empty node: %+v, %v", s, err)
	}
	if pods, err := n.Pods(); err != nil || len(pods) > 0 {
		t.Errorf("pods of an empty node: %v, %v", pods, err)
	}
	if _, err := n.Flows(nil); !errors.Is(err, view.ErrNotPinned) {
		t.Errorf("flows of an empty node: %v", err)
	}
	if r, err := n.Audit(); err != nil || len(r.Problems) != 1 || r.Problems[0].Kind != view.KindPin {
		t.Errorf("audit of an empty node: %+v, %v: want that Latch does not run", r, err)
	}
}

// An interface that was closed, and of which nothing is recorded, is found by the programs that it runs.
func TestClosed(t *testing.T) {
	g := newGround(t)
	want := func(what, name string) {
		t.Helper()
		g.look(func(n *view.Node) error {
			closed, err := n.Closed()
			if name == "" && len(closed) == 0 {
				return err
			}
			if err == nil && (len(closed) != 1 || closed[0].Object != name || closed[0].Kind != view.KindOrphan) {
				err = fmt.Errorf("%s: closed %v, want %q", what, closed, name)
			}
			return err
		})
	}
	want("all in order", "")
	g.onNode(func() error { return g.editPodState(func(words []uint32) { words[0] = 0 }) })
	want("recorded: the audit's to tell", "")
	g.onNode(func() error { return g.e.Store().DeleteAttachment("c-"+testenv.PodB.Name, "eth0") })
	want("not recorded", g.b.HostName)
	g.Node.DelLink(t, g.b.HostName)
	want("gone", "")
}
