package policy

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// entryTexts lists the prefixes of one direction's entries.
func entryTexts(r *Rules, d Direction) []string {
	var out []string
	for _, e := range r.Entries[d] {
		out = append(out, e.Prefix.String())
	}
	return out
}

// TestEntries proves which entries are made: masked, ordered, and none that says what is said
// around it already.
func TestEntries(t *testing.T) {
	for _, c := range []struct {
		name  string
		rules []string
		want  []string
	}{
		{"no rules", nil, nil},
		{"host bits are masked", []string{"10.1.2.3/8", "fd00::1/64"}, []string{"10.0.0.0/8", "fd00::/64"}},
		{"a bare address is a host", []string{"10.1.2.3", "fd00::1"}, []string{"10.1.2.3/32", "fd00::1/128"}},
		{"duplicates", []string{"10.0.0.0/8", "10.0.0.0/8", "10.255.0.0/8"}, []string{"10.0.0.0/8"}},
		{"nested with the same ports", []string{"10.1.0.0/16", "10.0.0.0/8", "10.1.2.0/24"}, []string{"10.0.0.0/8"}},
		{"nested with ports of the outer one", []string{"10.0.0.0/8 -> TCP/80-90", "10.1.0.0/16 -> TCP/80-90"},
			[]string{"10.0.0.0/8"}},
		{"everything of both families, IPv4 first", []string{"::/0", "0.0.0.0/0"}, []string{"0.0.0.0/0", "::/0"}},
		{"an exception", []string{"10.0.0.0/8 except 10.1.0.0/16"}, []string{"10.0.0.0/8", "10.1.0.0/16"}},
		{"an exception with host bits", []string{"10.0.0.0/8 except 10.1.2.3/16"}, []string{"10.0.0.0/8", "10.1.0.0/16"}},
		{"an exception equal to the block", []string{"10.0.0.0/8 except 10.0.0.0/8"}, nil},
		{"an exception around the block", []string{"10.0.0.0/8 except 0.0.0.0/0"}, nil},
		{"an exception outside", []string{"10.0.0.0/8 except 11.0.0.0/8"}, []string{"10.0.0.0/8"}},
		{"an exception of the other family", []string{"10.0.0.0/8 except ::/0"}, []string{"10.0.0.0/8"}},
		{"equal, nested and outer exceptions", []string{"10.0.0.0/8 except 10.1.2.0/24,10.1.0.0/16,10.1.0.0/16,10.1.255.0/24"},
			[]string{"10.0.0.0/8", "10.1.0.0/16"}},
		{"a host excepted from everything", []string{"::/0 except ::/128"}, []string{"::/0", "::/128"}},
		{"two rules fill each other's exceptions",
			[]string{"10.0.0.0/8 except 10.1.0.0/16", "10.0.0.0/8 except 10.2.0.0/16"}, []string{"10.0.0.0/8"}},
		{"a v4-mapped block is dropped", []string{"::ffff:10.0.0.0/104", "fd00::/8"}, []string{"fd00::/8"}},
		{"a v4-mapped exception voids its rule",
			[]string{"0.0.0.0/0 except ::ffff:10.0.0.0/104", "10.0.0.0/8"}, []string{"10.0.0.0/8"}},
		{"no ports", []string{"10.0.0.0/8 -> none"}, nil},
		{"a range that ends before it starts", []string{"10.0.0.0/8 -> TCP/90-80"}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := Compile(Input{Policies: []Policy{np(t, "p", Egress, c.rules...)}})
			checkShape(t, r)
			if diff := cmp.Diff(c.want, entryTexts(r, Egress), cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if n := len(r.Entries[Ingress]); n != 0 {
				t.Errorf("%d entries in the other direction", n)
			}
		})
	}
}

// TestExceptOfDeny proves that an exception which is not valid does not open what a rule denies.
func TestExceptOfDeny(t *testing.T) {
	in := Input{
		Cluster: []ClusterPolicy{cnp(t, "a", TierAdmin, 0, Egress, "Deny 10.0.0.0/8 except ::ffff:10.1.0.0/112,10.2.0.0/16")},
		Default: [2]Verdict{Allow, Allow},
	}
	checkRows(t, in, Egress, []row{
		{"10.1.0.1 TCP/80", Deny, "a/0"}, {"10.2.0.1 TCP/80", Allow, ""}, {"10.3.0.1 TCP/80", Deny, "a/0"}})
}

// TestNestedExceptions proves that an address which a rule excepts twice is excepted once: another
// rule of the same source still covers it.
func TestNestedExceptions(t *testing.T) {
	in := Input{Policies: []Policy{np(t, "p", Egress, "10.0.0.0/8 except 10.1.0.0/16,10.1.2.0/24,10.1.2.0/24", "10.1.2.0/25")}}
	checkRows(t, in, Egress, []row{
		{"10.2.0.1 TCP/80", Allow, "p/0"}, {"10.1.1.1 TCP/80", Deny, "p/isolation"},
		{"10.1.2.1 TCP/80", Allow, "p/1"}, {"10.1.2.129 TCP/80", Deny, "p/isolation"}})
}

// TestBreakpoints proves the exact port intervals.
func TestBreakpoints(t *testing.T) {
	for _, c := range []struct {
		name  string
		ports string
		want  []uint32 // where allow and deny alternate, deny first
		text  string
	}{
		{"one port", "TCP/80", []uint32{0, PortKey(TCP, 80), PortKey(TCP, 81)}, "TCP/80"},
		{"first and last port", "TCP/0,TCP/65535",
			[]uint32{0, PortKey(TCP, 0), PortKey(TCP, 1), PortKey(TCP, 65535), PortKey(7, 0)}, "TCP/0,TCP/65535"},
		{"a whole protocol", "UDP", []uint32{0, PortKey(UDP, 0), PortKey(18, 0)}, "UDP"},
		{"overlapping ranges", "TCP/80-90,TCP/85-100,TCP/82", []uint32{0, PortKey(TCP, 80), PortKey(TCP, 101)}, "TCP/80-100"},
		{"adjacent ranges", "TCP/81-90,TCP/80", []uint32{0, PortKey(TCP, 80), PortKey(TCP, 91)}, "TCP/80-90"},
		{"duplicates", "SCTP/3868,SCTP/3868", []uint32{0, PortKey(SCTP, 3868), PortKey(SCTP, 3869)}, "SCTP/3868"},
		{"two protocols", "UDP/53,TCP/53",
			[]uint32{0, PortKey(TCP, 53), PortKey(TCP, 54), PortKey(UDP, 53), PortKey(UDP, 54)}, "TCP/53,UDP/53"},
		{"neighbours in number only", "TCP/65535,7/0", []uint32{0, PortKey(TCP, 65535), PortKey(7, 1)}, "TCP/65535,7/0"},
		{"a range that ends before it starts is left out", "TCP/90-80,TCP/1", []uint32{0, PortKey(TCP, 1), PortKey(TCP, 2)}, "TCP/1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := Compile(Input{Policies: []Policy{np(t, "p", Egress, "10.0.0.0/8 -> "+c.ports)}})
			var got []uint32
			for i, b := range r.Entries[Egress][0].Ports {
				if want := Verdict(i % 2); b.Result.Verdict != want {
					t.Errorf("breakpoint %d: %v, want %v", i, b, want)
				}
				got = append(got, b.Start)
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if s, _ := r.Source(r.Entries[Egress][0].Ports[1].Result.Rule); s.Ports != c.text {
				t.Errorf("ports %q, want %q", s.Ports, c.text)
			}
		})
	}
	r := Compile(Input{Policies: []Policy{np(t, "p", Egress, "10.0.0.0/8")}})
	if ports := r.Entries[Egress][0].Ports; len(ports) != 1 || ports[0].Result.Verdict != Allow {
		t.Errorf("all ports are %v", ports)
	}
}

// TestLookupOdd proves that addresses which cannot match miss, and do not panic.
func TestLookupOdd(t *testing.T) {
	r := Compile(Input{Policies: []Policy{np(t, "p", Egress, "0.0.0.0/0", "fe80::/10 -> TCP/80")}})
	if got := r.Lookup(Egress, netip.Addr{}, TCP, 80); got != r.OnMiss[Egress] {
		t.Errorf("zero address: %v", got)
	}
	if got := r.Lookup(Egress, netip.MustParseAddr("::ffff:10.0.0.1"), TCP, 80); got != r.OnMiss[Egress] {
		t.Errorf("v4-mapped address: %v", got)
	}
	zoned := netip.MustParseAddr("fe80::1%eth0")
	if got := r.Lookup(Egress, zoned, TCP, 80); got.Verdict != Allow {
		t.Errorf("address with a zone: %v", got)
	}
	if e := Explain(Input{}, Egress, zoned, TCP, 80); e.Tier != TierDefault {
		t.Errorf("no policy: %v", e)
	}
	if _, ok := r.Source(0); ok {
		t.Error("the default has a source")
	}
	empty := &Rules{}
	if got := empty.Lookup(Ingress, zoned, TCP, 80); got != (Result{}) {
		t.Errorf("no rules: %v", got)
	}
}
