package policy

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
)

// differing counts the prefixes whose entries differ between two sets of rules.
func differing(a, b *Rules, d Direction) int {
	n := 0
	old := make(map[netip.Prefix][]Breakpoint, len(a.Entries[d]))
	for _, e := range a.Entries[d] {
		old[e.Prefix] = e.Ports
	}
	for _, e := range b.Entries[d] {
		ports, ok := old[e.Prefix]
		if !ok || !slices.Equal(ports, e.Ports) {
			n++
		}
		delete(old, e.Prefix)
	}
	return n + len(old)
}

// TestEditChangesOnlyItsEntries proves that an edit leaves ids and entries alone that it is not
// about.
func TestEditChangesOnlyItsEntries(t *testing.T) {
	start := func() Input {
		return Input{
			Policies: []Policy{
				np(t, "m", Egress, "10.0.0.0/8 -> TCP/80", "10.1.0.0/16 -> TCP/443", "172.16.0.1 -> TCP/80"),
				np(t, "n", Egress, "fd00::/8 except fd00:1::/32"),
			},
			Default: [2]Verdict{Allow, Allow},
		}
	}
	for _, c := range []struct {
		name string
		edit func(*Input)
		want int // entries that differ
	}{
		{"nothing", func(*Input) {}, 0},
		{"one peer more", func(in *Input) {
			in.Policies[0].Rules[Egress] = append(in.Policies[0].Rules[Egress], rule(t, "172.16.0.2 -> TCP/80"))
		}, 1},
		{"one peer less", func(in *Input) { in.Policies[0].Rules[Egress] = in.Policies[0].Rules[Egress][:2] }, 1},
		{"a peer that is covered already", func(in *Input) {
			in.Policies[0].Rules[Egress] = append(in.Policies[0].Rules[Egress], rule(t, "10.3.0.0/16 -> TCP/80"))
		}, 0},
		{"one exception more", func(in *Input) {
			r := &in.Policies[1].Rules[Egress][0]
			r.Peer.Except = append(r.Peer.Except, prefix(t, "fd00:2::/32"))
		}, 1},
		{"an unrelated policy in between", func(in *Input) {
			in.Policies = append(in.Policies, np(t, "mm", Egress, "198.51.100.0/24"))
		}, 1},
		{"a policy of the other direction", func(in *Input) {
			in.Policies = append(in.Policies, np(t, "a", Ingress, "198.51.100.0/24"))
		}, 0},
		{"a cluster policy for one address", func(in *Input) {
			in.Cluster = append(in.Cluster, cnp(t, "c", TierAdmin, 0, Egress, "Deny 10.1.2.3"))
		}, 1},
		{"a baseline policy that is not asked", func(in *Input) {
			in.Cluster = append(in.Cluster, cnp(t, "c", TierBaseline, 0, Egress, "Deny 0.0.0.0/0"))
		}, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			in := start()
			before := Compile(in)
			c.edit(&in)
			after := Compile(in)
			if got := differing(before, after, Egress); got != c.want {
				t.Errorf("%d entries differ, want %d:\n%v\n%v", got, c.want, before.Entries[Egress], after.Entries[Egress])
			}
			if (before.Hash() == after.Hash()) != (differing(before, after, Egress)+differing(before, after, Ingress) == 0 && before.OnMiss == after.OnMiss) {
				t.Error("the hash does not tell whether anything differs")
			}
			for _, s := range before.Sources {
				if now, ok := after.Source(s.ID); ok && now.identity() != s.identity() {
					t.Errorf("id %d was %+v, is %+v", s.ID, s, now)
				}
			}
		})
	}
}

// TestIDs proves that ids are apart, in range and the same in every build: records and events
// keep them.
func TestIDs(t *testing.T) {
	var in Input
	for i := range 20_000 {
		in.Policies = append(in.Policies, np(t, fmt.Sprint("p", i), Ingress, fmt.Sprintf("10.%d.%d.1", i/256, i%256)))
	}
	r := Compile(in)
	if len(r.Sources) != 20_001 { // and the isolation
		t.Errorf("%d sources", len(r.Sources))
	}
	checkIDs(t, r)
	moved := 0
	for _, s := range r.Sources {
		if s.hash() != s.ID {
			moved++
		}
	}
	if moved == 0 || moved > 100 {
		t.Errorf("%d ids are not their hash, expected about 12 collisions", moved)
	}
	s := Source{Policy: PolicyRef{"NetworkPolicy", "t1", "p"}, Tier: TierNetworkPolicy, Action: ActionAccept, Ports: "TCP/80"}
	if got, want := s.hash(), RuleID(7764510); got != want {
		t.Errorf("id %d, always was %d", got, want)
	}
}

// checkIDs checks that ids are in range, unique and sorted.
func checkIDs(t *testing.T, r *Rules) {
	t.Helper()
	for i, s := range r.Sources {
		if s.ID < 256 || s.ID > 0xffffff || i > 0 && s.ID <= r.Sources[i-1].ID {
			t.Fatalf("id %d after %v", s.ID, r.Sources[max(i-1, 0)].ID)
		}
	}
}

// TestCollision proves that of two sources with one hash the first in order keeps it, and that the
// search for a free id goes round.
func TestCollision(t *testing.T) {
	seen := map[RuleID]Source{}
	for i := 0; ; i++ {
		b := Source{Policy: PolicyRef{"NetworkPolicy", "t1", fmt.Sprint("p", i)}, Tier: TierNetworkPolicy}
		a, ok := seen[b.hash()]
		seen[b.hash()] = b
		if !ok {
			continue
		}
		if compareSources(&a, &b) > 0 {
			a, b = b, a
		}
		hash := a.hash()
		next := hash + 1
		if next > lastRuleID {
			next = firstRuleID
		}
		for _, order := range [][]*Source{{&a, &b}, {&b, &a}} {
			assignIDs(order)
			if a.ID != hash || b.ID != next {
				t.Errorf("ids %d and %d of hash %d", a.ID, b.ID, hash)
			}
		}
		return
	}
}

// TestHash proves that every part of the kernel's content counts, and Sources do not.
func TestHash(t *testing.T) {
	in := Input{Policies: []Policy{np(t, "p", Egress, "10.0.0.0/8 -> TCP/80", "11.0.0.0/8", "fd00::/8")}}
	want := Compile(in).Hash()
	for _, c := range []struct {
		name string
		edit func(*Rules)
		same bool
	}{
		{"sources", func(r *Rules) { r.Sources = nil }, true},
		{"an unshared copy of ports", func(r *Rules) {
			for i := range r.Entries[Egress] {
				r.Entries[Egress][i].Ports = slices.Clone(r.Entries[Egress][i].Ports)
			}
		}, true},
		{"verdict on miss", func(r *Rules) { r.OnMiss[Ingress].Verdict = Allow }, false},
		{"rule on miss", func(r *Rules) { r.OnMiss[Egress].Rule++ }, false},
		{"directions", func(r *Rules) { r.Entries[0], r.Entries[1] = r.Entries[1], r.Entries[0] }, false},
		{"an entry less", func(r *Rules) { r.Entries[Egress] = r.Entries[Egress][1:] }, false},
		{"an address", func(r *Rules) { r.Entries[Egress][0].Prefix = prefix(t, "12.0.0.0/8") }, false},
		{"a prefix length", func(r *Rules) { r.Entries[Egress][0].Prefix = prefix(t, "10.0.0.0/9") }, false},
		{"a family", func(r *Rules) { r.Entries[Egress][0].Prefix = prefix(t, "::ffff:10.0.0.0/8") }, false},
		{"where an interval starts", func(r *Rules) { r.Entries[Egress][0].Ports[1].Start-- }, false},
		{"a rule of an interval", func(r *Rules) { r.Entries[Egress][0].Ports[1].Result.Rule++ }, false},
		{"a verdict of an interval", func(r *Rules) { r.Entries[Egress][0].Ports[0].Result.Verdict = Allow }, false},
		{"no intervals", func(r *Rules) { r.Entries[Egress][0].Ports = nil }, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := Compile(in)
			c.edit(r)
			if got := r.Hash(); (got == want) != c.same {
				t.Errorf("same hash: %v, want %v", got == want, c.same)
			}
		})
	}
}
