package policy

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestExplain proves that an explanation names the exact rule, and whatever else matched.
func TestExplain(t *testing.T) {
	in := Input{
		Policies: []Policy{
			np(t, "web", Ingress, "10.9.0.0/16 -> TCP/80", "10.0.0.0/8 -> TCP/80", "10.0.1.0/24 -> TCP/80", "10.0.1.0/24"),
			np(t, "deny", Ingress),
			np(t, "out", Egress, "0.0.0.0/0"),
		},
		Cluster: []ClusterPolicy{
			cnp(t, "guard", TierAdmin, 10, Ingress, "Deny 11.0.0.0/8", "Pass 10.0.0.0/8 -> TCP/80", "Deny 10.66.0.0/16"),
			cnp(t, "base", TierBaseline, 20, Ingress, "Accept 0.0.0.0/0 -> UDP"),
		},
		Default: [2]Verdict{Allow, Allow},
	}
	for _, c := range []struct {
		packet string
		want   []string
	}{
		{"10.0.1.11 TCP/80", []string{
			"ingress 10.0.1.11 TCP/80: allow by NetworkPolicy: NetworkPolicy t1/web rule 3",
			"  Admin priority 10: Pass ClusterNetworkPolicy guard rule 1: 10.0.0.0/8 TCP/80",
			"* NetworkPolicy: Accept NetworkPolicy t1/web rule 3: 10.0.1.0/24 all ports",
			"  NetworkPolicy: Accept NetworkPolicy t1/web rule 1: 10.0.0.0/8 TCP/80",
			"  NetworkPolicy: Accept NetworkPolicy t1/web rule 2: 10.0.1.0/24 TCP/80",
		}},
		{"10.66.0.1 TCP/80", []string{
			"ingress 10.66.0.1 TCP/80: deny by Admin: ClusterNetworkPolicy guard rule 2",
			"* Admin priority 10: Deny ClusterNetworkPolicy guard rule 2: 10.66.0.0/16 all ports",
			"  Admin priority 10: Pass ClusterNetworkPolicy guard rule 1: 10.0.0.0/8 TCP/80",
			"  NetworkPolicy: Accept NetworkPolicy t1/web rule 1: 10.0.0.0/8 TCP/80",
		}},
		{"10.5.0.1 UDP/53", []string{
			"ingress 10.5.0.1 UDP/53: deny by NetworkPolicy: isolated by NetworkPolicy t1/deny, no rule matches",
			"  Baseline priority 20: Accept ClusterNetworkPolicy base rule 0: 0.0.0.0/0 UDP",
		}},
	} {
		p := packets(t, c.packet)[0]
		e := Explain(in, Ingress, p.addr, p.proto, p.port)
		if diff := cmp.Diff(c.want, strings.Split(e.String(), "\n")); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		want := []PolicyRef{{"NetworkPolicy", "t1", "deny"}, {"NetworkPolicy", "t1", "web"}}
		if diff := cmp.Diff(want, e.Isolating); diff != "" {
			t.Errorf("isolating (-want +got):\n%s", diff)
		}
	}
	p := packets(t, "198.51.100.1 1/0")[0]
	e := Explain(Input{}, Egress, p.addr, p.proto, p.port)
	if got, want := e.String(), "egress 198.51.100.1 1/0: deny by Default"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
