package world

import (
	"strings"
	"testing"

	networkingv1 "k8s.io/api/networking/v1"

	"github.com/latch-cni/latch/cmd/latchd/apis"
	"github.com/latch-cni/latch/cmd/latchd/apis/v1alpha1"
)

// TestCheck finds in objects of every kind what is taken for something else, without saying for what, and nothing in
// those that can be read.
func TestCheck(t *testing.T) {
	everything := v1alpha1.Subject{Namespaces: pointer(selectorOf(""))}
	directions := []networkingv1.PolicyType{"Ingress", "egress"}
	cluster := func(tweak func(*v1alpha1.ClusterNetworkPolicySpec)) apis.Object {
		return makeCNP("c", everything, func(p *v1alpha1.ClusterNetworkPolicy) { tweak(&p.Spec) })
	}
	application := makeANP("p", "", "")
	application.Spec.PolicyTypes = directions
	for _, tt := range []struct {
		name   string
		object apis.Object
		want   string
	}{
		{"pod", makePod("a", "app=a"), ""},
		{"network policy", makeNP("p", "", "IE"), ""},
		{"application policy", makeANP("p", "", ""), ""},
		{"cluster policy", cluster(func(s *v1alpha1.ClusterNetworkPolicySpec) {
			s.Egress = []v1alpha1.ClusterPolicyRule{{Action: "Deny"}, {Action: "Pass"}, {Action: "Accept"}}
		}), ""},
		{"endpoints", makePE("x", "IE", listed("a1"), in("10.0.0.0/8 TCP/80"), out("fd00::1 UDP", "10.1.2.3/8"), func(o *v1alpha1.PolicyEndpoint) {
			o.Spec.Egress = append(o.Spec.Egress, v1alpha1.EndpointInfo{DomainName: "a.b"})
		}), ""},
		{"types of a network policy", makeNP("p", "", "", func(p *networkingv1.NetworkPolicy) { p.Spec.PolicyTypes = directions }), `spec.policyTypes: "egress" is no direction`},
		{"types of an application policy", application, `spec.policyTypes: "egress" is no direction`},
		{"tier", cluster(func(s *v1alpha1.ClusterNetworkPolicySpec) { s.Tier = "" }), `spec.tier: "" is no tier`},
		{"priority", cluster(func(s *v1alpha1.ClusterNetworkPolicySpec) { s.Priority = 1001 }), "spec.priority: 1001 is not in 0..1000"},
		{"action", cluster(func(s *v1alpha1.ClusterNetworkPolicySpec) {
			s.Ingress = []v1alpha1.ClusterPolicyRule{{Action: "Allow"}}
		}), `spec.ingress[0].action: "Allow" is no action`},
		{"isolation", makePE("x", "", func(o *v1alpha1.PolicyEndpoint) { o.Spec.PodIsolation = directions }), `spec.podIsolation: "egress" is no direction`},
		{"ingress", makePE("x", "I", in("10.0.0.0/33")), `spec.ingress[0].cidr: "10.0.0.0/33" is no block of addresses`},
		{"egress", makePE("x", "I", out("10.0.0.1", "10.0.0.1 tcp/80")), `spec.egress[1].ports[0].protocol: "tcp" is no protocol with ports`},
		{"mapped", makePE("x", "I", in("::ffff:10.0.0.1")), `spec.ingress[0].cidr: "::ffff:10.0.0.1" is an IPv4 block written as IPv6, which no packet matches`},
		{"except", makePE("x", "I", in("10.0.0.0/8"), func(o *v1alpha1.PolicyEndpoint) { o.Spec.Ingress[0].Except = []string{"11.0.0.0/8", "10.1.0.0/40"} }),
			`spec.ingress[0].except[1]: "10.1.0.0/40" is no block of addresses`},
		{"listed pod", makePE("x", "I", listed("a1"), func(o *v1alpha1.PolicyEndpoint) { o.Spec.PodSelectorEndpoints[0].PodIP = "10.0.1" }),
			`spec.podSelectorEndpoints[0].podIP: "10.0.1" is no address`},
	} {
		var have []string
		for _, p := range Check(tt.object) {
			have = append(have, p.Field+": "+p.Message)
		}
		if got := strings.Join(have, ", "); got != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
	for field, spoil := range malformed {
		for _, action := range []v1alpha1.Action{v1alpha1.ActionAccept, v1alpha1.ActionDeny, v1alpha1.ActionPass} {
			o := makeCPE("x", "c", func(o *v1alpha1.ClusterPolicyEndpoint) {
				o.Spec.Egress = []v1alpha1.ClusterEndpointInfo{{CIDR: "10.9.0.1", Action: action}}
			})
			if p := Check(o); len(p) > 0 {
				t.Errorf("%s: problems %v before anything is malformed", action, p)
			}
			if spoil(&o.Spec, &o.Spec.Egress[0]); len(Check(o)) == 0 {
				t.Errorf("%s with a malformed %s: nothing is found", action, field)
			}
		}
	}
}
