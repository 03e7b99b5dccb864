package world

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"

	"github.com/latch-cni/latch/cmd/latchd/apis"
	"github.com/latch-cni/latch/cmd/latchd/apis/v1alpha1"
	"github.com/latch-cni/latch/shared/policy"
)

func block(s string) netip.Prefix { return netip.MustParsePrefix(s) }

var comparePrefixes = []cmp.Option{
	cmp.Comparer(func(a, b netip.Prefix) bool { return a == b }), cmpopts.EquateEmpty(),
}

func port(protocol string, numbers ...int32) v1alpha1.Port {
	p := v1alpha1.Port{}
	if protocol != "" {
		p.Protocol = pointer(corev1.Protocol(protocol))
	}
	if len(numbers) > 0 {
		p.Port = pointer(numbers[0])
	}
	if len(numbers) > 1 {
		p.EndPort = pointer(numbers[1])
	}
	return p
}

// TestConvertRule converts one rule: to one rule, or to none and a problem.
func TestConvertRule(t *testing.T) {
	all := func(b string, except ...string) *policy.Rule {
		r := &policy.Rule{Peer: policy.Peer{Block: block(b)}, AllPorts: true}
		for _, e := range except {
			r.Peer.Except = append(r.Peer.Except, block(e))
		}
		return r
	}
	ports := func(ports ...policy.Ports) *policy.Rule {
		return &policy.Rule{Peer: policy.Peer{Block: block("10.0.0.1/32")}, Ports: ports}
	}
	peer := func(cidr string, except ...string) v1alpha1.EndpointInfo {
		return v1alpha1.EndpointInfo{CIDR: cidr, Except: except}
	}
	with := func(ports ...v1alpha1.Port) v1alpha1.EndpointInfo {
		return v1alpha1.EndpointInfo{CIDR: "10.0.0.1", Ports: ports}
	}
	tests := []struct {
		name    string
		rule    v1alpha1.EndpointInfo
		want    *policy.Rule
		problem string
	}{
		{name: "bare address", rule: peer("10.0.0.1"), want: all("10.0.0.1/32")},
		{name: "bare IPv6 address", rule: peer("fd00::1"), want: all("fd00::1/128")},
		{name: "block", rule: peer("10.0.0.0/8"), want: all("10.0.0.0/8")},
		{name: "host bits", rule: peer("10.1.2.3/8"), want: all("10.0.0.0/8")},
		{name: "IPv6 host bits", rule: peer("fd00::1/64"), want: all("fd00::/64")},
		{name: "everything", rule: peer("::/0"), want: all("::/0")},
		{name: "mapped address", rule: peer("::ffff:10.0.0.1"), problem: `spec.egress[0].cidr: "::ffff:10.0.0.1" is an IPv4 block written as IPv6`},
		{name: "mapped block", rule: peer("::ffff:10.0.0.0/104"), problem: "spec.egress[0].cidr: "},
		{name: "no address", rule: peer("10.0.0"), problem: `spec.egress[0].cidr: "10.0.0" is no block of addresses: the rule is left out`},
		{name: "prefix too long", rule: peer("10.0.0.0/33"), problem: "spec.egress[0].cidr: "},
		{name: "zone", rule: peer("fe80::1%eth0"), problem: "spec.egress[0].cidr: "},
		{name: "leading zeros", rule: peer("010.0.0.1"), problem: "spec.egress[0].cidr: "},
		{name: "no peer", rule: v1alpha1.EndpointInfo{Ports: []v1alpha1.Port{port("TCP", 80)}}, problem: "spec.egress[0]: has neither cidr nor domainName"},
		{name: "domain", rule: v1alpha1.EndpointInfo{DomainName: "example.com"}, problem: "1 rules name a domain, which is not supported"},
		{name: "address and domain", rule: v1alpha1.EndpointInfo{CIDR: "10.0.0.1", DomainName: "example.com"}, problem: "spec.egress[0]: has both"},
		{name: "except", rule: peer("10.0.0.0/8", "10.1.0.9/16", "10.2.0.1"), want: all("10.0.0.0/8", "10.1.0.0/16", "10.2.0.1/32")},
		{name: "except outside", rule: peer("10.0.0.0/8", "11.0.0.0/8"), want: all("10.0.0.0/8"), problem: `spec.egress[0].except[0]: "11.0.0.0/8" is not in 10.0.0.0/8: it takes nothing away`},
		{name: "except of the other family", rule: peer("10.0.0.0/8", "fd00::/8"), want: all("10.0.0.0/8"), problem: `spec.egress[0].except[0]: "fd00::/8" is not in 10.0.0.0/8`},
		{name: "except equal and larger", rule: peer("10.0.0.0/8", "10.0.0.0/8", "0.0.0.0/0"), want: all("10.0.0.0/8", "10.0.0.0/8", "0.0.0.0/0")},
		{name: "malformed except", rule: peer("10.0.0.0/8", "10.1.0.0/16", "ten"), problem: `spec.egress[0].except[1]: "ten" is no block of addresses: the rule is left out`},
		{name: "empty list of ports", rule: v1alpha1.EndpointInfo{CIDR: "10.0.0.1", Ports: []v1alpha1.Port{}}, want: all("10.0.0.1/32")},
		{name: "port", rule: with(port("UDP", 53)), want: ports(policy.Ports{Protocol: policy.UDP, First: 53, Last: 53})},
		{name: "no protocol is TCP", rule: with(port("", 80)), want: ports(policy.Ports{Protocol: policy.TCP, First: 80, Last: 80})},
		{name: "whole protocol", rule: with(port("SCTP")), want: ports(policy.Ports{Protocol: policy.SCTP, First: 0, Last: 65535})},
		{name: "neither protocol nor port", rule: with(port("")), want: ports(policy.Ports{Protocol: policy.TCP, First: 0, Last: 65535})},
		{name: "range", rule: with(port("TCP", 80, 90)), want: ports(policy.Ports{Protocol: policy.TCP, First: 80, Last: 90})},
		{name: "range of one", rule: with(port("TCP", 80, 80)), want: ports(policy.Ports{Protocol: policy.TCP, First: 80, Last: 80})},
		{name: "ends of the range of ports", rule: with(port("TCP", 0, 65535)), want: ports(policy.Ports{Protocol: policy.TCP, First: 0, Last: 65535})},
		{name: "two ports", rule: with(port("TCP", 80), port("UDP", 80)), want: ports(
			policy.Ports{Protocol: policy.TCP, First: 80, Last: 80}, policy.Ports{Protocol: policy.UDP, First: 80, Last: 80})},
		{name: "end below start", rule: with(port("TCP", 80, 79)), problem: "spec.egress[0].ports[0].endPort: 79 is not in 80..65535"},
		{name: "end too large", rule: with(port("TCP", 80, 65536)), problem: "spec.egress[0].ports[0].endPort: "},
		{name: "end without port", rule: with(v1alpha1.Port{EndPort: pointer(int32(9))}), problem: "spec.egress[0].ports[0].endPort: is 9 without a port"},
		{name: "port too large", rule: with(port("TCP", 65536)), problem: "spec.egress[0].ports[0].port: 65536 is not in 0..65535"},
		{name: "negative port", rule: with(port("TCP", -1)), problem: "spec.egress[0].ports[0].port: "},
		{name: "one bad port spoils the rule", rule: with(port("TCP", 80), port("ICMP")), problem: `spec.egress[0].ports[1].protocol: "ICMP" is no protocol with ports`},
		{name: "protocol in small letters", rule: with(port("tcp", 80)), problem: "spec.egress[0].ports[0].protocol: "},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			good := v1alpha1.EndpointInfo{CIDR: "192.168.0.0/16"}
			o := makePE("x", "E")
			o.Spec.Egress = []v1alpha1.EndpointInfo{tt.rule, good} // the neighbour must survive
			o.Spec.Ingress = []v1alpha1.EndpointInfo{good}
			c := convertPolicyEndpoint(o, apis.Ref{Kind: apis.KindPolicyEndpoint, Namespace: "t1", Name: "x"}, Options{})
			want := []policy.Rule{*all("192.168.0.0/16")}
			if tt.want != nil {
				want = slices.Insert(want, 0, *tt.want)
			}
			if diff := cmp.Diff(want, c.rules[policy.Egress], comparePrefixes...); diff != "" {
				t.Error("rules: want -, have +:\n", diff)
			}
			wantProblems(t, c.problems, tt.problem)
			if len(c.rules[policy.Ingress]) != 1 || c.isolates != [2]bool{policy.Egress: true} {
				t.Errorf("ingress is %v, isolation %v", c.rules[policy.Ingress], c.isolates)
			}
		})
	}
}

// wantProblems checks for exactly one problem of PolicyEndpoint t1/x or ClusterPolicyEndpoint x, or none.
func wantProblems(t *testing.T, problems []apis.Problem, want string) {
	t.Helper()
	switch {
	case want == "" && len(problems) > 0:
		t.Errorf("problems %v, want none", problems)
	case want != "" && (len(problems) != 1 || !strings.Contains(problems[0].String(), "x: "+want)):
		t.Errorf("problems %v, want %q", problems, want)
	}
}

// TestConvertBoundsProblems reports a few of very many malformed rules, and how many more there are.
func TestConvertBoundsProblems(t *testing.T) {
	o := makePE("x", "E")
	for range 1000 {
		o.Spec.Egress = append(o.Spec.Egress, v1alpha1.EndpointInfo{CIDR: "ten"}, v1alpha1.EndpointInfo{DomainName: "a.b"})
	}
	c := convertPolicyEndpoint(o, apis.Ref{}, Options{})
	var last []string
	for _, p := range c.problems[maxProblems:] {
		last = append(last, p.Message)
	}
	want := []string{"984 more rules are malformed", "1000 rules name a domain, which is not supported: they match nothing"}
	if diff := cmp.Diff(want, last); diff != "" {
		t.Error("want -, have +:\n", diff)
	}
}

// TestIsolationDecides is D11, and the union of podIsolation over all endpoints objects.
func TestIsolationDecides(t *testing.T) {
	s := newStage(t)
	s.Synced()
	s.Upsert(makeNP("p", "app=a", "IE"), makePE("x", "I", in("10.0.1.11"), out("10.9.0.1")))
	s.want("egress rules without isolation", "app=a", "E:203.0.113.9 TCP/80", "create=A running=A")
	s.want("ingress", "app=a", stranger, "create=D running=D")
	s.Upsert(makePE("y", "E"))
	s.want("isolated by another object", "app=a", "E:203.0.113.9 TCP/80", "create=D running=D")
	s.want("isolated by another object", "app=a", "E:10.9.0.1 TCP/80", "create=A running=A")
	s.Upsert(makePE("z", "", func(o *v1alpha1.PolicyEndpoint) {
		o.Spec.PodIsolation = []networkingv1.PolicyType{"egress"}
	}))
	if p := s.Problems(); len(p) != 1 || p[0].Field != "spec.podIsolation" {
		t.Errorf("problems are %v", p)
	}
}

// TestIsolationByDefault closes what a policy without types isolates by the API: the controller hands on that there
// are none.
func TestIsolationByDefault(t *testing.T) {
	const outside = "E:203.0.113.9 TCP/80"
	egress := makeANP("p", "app=a", "")
	egress.Spec.Egress = []struct{}{{}}
	owned := ofPolicy(apis.KindApplicationNetworkPolicy, "p")
	for _, tt := range []struct {
		name   string
		object apis.Object
		chunk  *v1alpha1.PolicyEndpoint
		out    string
	}{
		{"ingress rules", makeANP("p", "app=a", ""), makePE("x", "", owned, in("10.0.1.11")), "A"},
		{"egress rules", egress, makePE("x", "", owned, out("10.9.0.1")), "D"},
		{"egress rules that match nothing", egress, makePE("x", "", owned), "D"},
		{"no rules", makeANP("p", "app=a", ""), makePE("x", "", owned), "A"},
		{"its own object is not known, ingress rules", nil, makePE("x", "", owned, copySelector("app=a"), in("10.0.1.11")), "A"},
		{"its own object is not known, egress rules that match nothing", nil, makePE("x", "", owned, copySelector("app=a"), out("10.9.0.1/99")), "D"},
		{"its own object is not known, egress rules", nil, makePE("x", "", owned, copySelector("app=a"), out("10.9.0.1")), "D"},
	} {
		s := newStage(t)
		s.Synced()
		if tt.object != nil {
			s.Upsert(tt.object)
		}
		s.Upsert(tt.chunk)
		s.want(tt.name, "app=a", stranger, "create=D running=D")
		s.want(tt.name, "app=a", outside, "create="+tt.out+" running="+tt.out)
		s.Upsert(makePE("y", "E", owned)) // one object that says it decides
		s.want(tt.name+", then types", "app=a", stranger, "create=A running=A")
		s.want(tt.name+", then types", "app=a", outside, "create=D running=D")
	}
}

// TestListingCannotBeRead selects a listed pod also where the list is mistyped: nothing else selects it.
func TestListingCannotBeRead(t *testing.T) {
	for _, entry := range []v1alpha1.PodEndpoint{
		{HostIP: nodeIP, PodIP: "10.0.1.1"},
		{HostIP: "10.0.0.1O", PodIP: "10.0.1.1"},
		{HostIP: nodeIP, PodIP: "10.0.1.1O"},
		{HostIP: "ten", PodIP: "ten"},
	} {
		s := newStage(t)
		s.Synced()
		entry.Namespace, entry.Name = "t1", "c"
		s.Upsert(makePod("c", "app=c", func(p *corev1.Pod) { p.Status.PodIP, p.Status.HostIP = "10.0.1.1", nodeIP }),
			makePE("x", "I", func(o *v1alpha1.PolicyEndpoint) { o.Spec.PodSelectorEndpoints = []v1alpha1.PodEndpoint{entry} }))
		s.want(entry.HostIP+" "+entry.PodIP, "app=c", stranger, "create=D running=D")
		good := entry.HostIP == nodeIP && entry.PodIP == "10.0.1.1"
		if p := s.desired("app=c").Problems; (len(p) == 0) != good || !good && !strings.HasPrefix(p[0].Field, "spec.podSelectorEndpoints[0].") {
			t.Errorf("%v: problems are %v", entry, p)
		}
	}
}

// TestMode is the default of pods that no policy selects, and D9.
func TestMode(t *testing.T) {
	s := newStage(t, func(o *Options) { o.Mode = Strict })
	s.Synced()
	s.running("app=a")
	s.want("strict", "app=a", stranger, "create=D running=D")
	s.Upsert(makeNP("p", "app=a", "I"), makePE("x", "I", in("0.0.0.0/0")))
	s.want("one direction isolated", "app=a", stranger, "create=A running=A")
	s.want("the other stays closed", "app=a", "E:203.0.113.9 TCP/80", "create=D running=D")
}

// TestClusterPolicy merges objects and follows labels of namespaces.
func TestClusterPolicy(t *testing.T) {
	const probe = "E:203.0.113.9 TCP/80"
	deny := func(o *v1alpha1.ClusterPolicyEndpoint) {
		o.Spec.Egress = []v1alpha1.ClusterEndpointInfo{{CIDR: "203.0.113.0/24", Action: v1alpha1.ActionDeny}}
	}
	subject := v1alpha1.Subject{Pods: &v1alpha1.NamespacedPod{
		NamespaceSelector: selectorOf("team=red"), PodSelector: selectorOf("app=a"),
	}}
	namespace := func(labels string) *corev1.Namespace {
		ns := &corev1.Namespace{}
		ns.Name, ns.Labels = "t1", labelsOf(labels)
		return ns
	}
	s := newStage(t)
	s.Synced()
	s.running("app=a", "app=b")
	s.Upsert(namespace("team=red"), makeCNP("c", subject), makeCPE("c-1", "c", deny))
	s.want("selected", "app=a", probe, "create=D running=D")
	s.want("other labels", "app=b", probe, "create=A running=A")
	if ids := s.Upsert(namespace("team=blue")); len(ids) != 2 {
		t.Errorf("relabelled namespace affects %v", ids)
	}
	s.want("namespace relabelled", "app=a", probe, "create=A running=A")
	s.Delete(namespace(""))
	s.want("namespace not known", "app=a", probe, "create=A running=A")
	if p := s.World.Problems(); len(p) != 1 || p[0].Object != "Namespace t1" {
		t.Errorf("problems are %v", p)
	}
	s.Upsert(makeCPE("c-1", "c", deny, func(o *v1alpha1.ClusterPolicyEndpoint) {
		o.Spec.PodSelectorEndpoints = []v1alpha1.PodEndpoint{{Namespace: "t1", Name: "a1", HostIP: nodeIP}}
	}))
	s.want("namespace not known, pod listed", "app=a", probe, "create=D running=D")
	s.Upsert(makeCNP("c", v1alpha1.Subject{Namespaces: pointer(selectorOf("kubernetes.io/metadata.name=t1"))}))
	s.want("by the name of the namespace", "app=b", probe, "create=D running=D")

	s.Delete(makeCNP("c", v1alpha1.Subject{}), makeCPE("c-1", ""))
	s.Upsert(namespace("team=red"), makeCPE("d-1", "d", deny, func(o *v1alpha1.ClusterPolicyEndpoint) { o.Spec.Subject = &subject }))
	s.want("without the policy object, by the subject", "app=a", probe, "create=D running=D")
	s.want("without the policy object, by the subject", "app=b", probe, "create=A running=A")
}

// TestClusterPolicyRank reports a rank that is none and takes the closed side.
func TestClusterPolicyRank(t *testing.T) {
	everything := v1alpha1.Subject{Namespaces: pointer(selectorOf(""))}
	rules := func(o *v1alpha1.ClusterPolicyEndpoint) {
		o.Spec.Egress = []v1alpha1.ClusterEndpointInfo{
			{CIDR: "10.9.0.1", Action: v1alpha1.ActionAccept}, {CIDR: "10.9.0.2", Action: v1alpha1.ActionDeny},
			{CIDR: "10.9.0.3", Action: v1alpha1.ActionPass},
		}
	}
	for _, tt := range []struct {
		tier     v1alpha1.Tier
		priority int32
		want     string
		problem  string
	}{
		{"Admin", 0, "Admin 0, 3 rules", ""},
		{"Baseline", 1000, "Baseline 1000, 3 rules", ""},
		{"Admin", 1001, "Admin 0, 2 rules", "1001 is not in 0..1000: only its Deny rules count, before all others"},
		{"Baseline", -1, "Baseline 0, 2 rules", "-1 is not"},
		{"admin", 5, "Admin 0, 2 rules", `"admin" is no tier`},
	} {
		s := newStage(t)
		s.Synced()
		s.Upsert(makeCNP("c", everything, func(p *v1alpha1.ClusterNetworkPolicy) {
			p.Spec.Tier, p.Spec.Priority = tt.tier, tt.priority
		}), makeCPE("c-1", "c", rules, func(o *v1alpha1.ClusterPolicyEndpoint) {
			o.Spec.Tier, o.Spec.Priority = tt.tier, tt.priority
		}))
		c := s.desired("app=a").Create.Cluster[0]
		tier := map[policy.Tier]string{policy.TierAdmin: "Admin", policy.TierBaseline: "Baseline"}[c.Tier]
		if got := fmt.Sprintf("%s %d, %d rules", tier, c.Priority, len(c.Rules[policy.Egress])); got != tt.want {
			t.Errorf("%v %v is %s, want %s", tt.tier, tt.priority, got, tt.want)
		}
		problems := s.desired("app=a").Problems
		if tt.problem == "" && len(problems) > 0 || tt.problem != "" && (len(problems) != 2 || !strings.Contains(problems[1].Message, tt.problem)) {
			t.Errorf("%v %v: problems %v, want %q", tt.tier, tt.priority, problems, tt.problem)
		}
	}
}

// TestClusterPolicyIsRanked edits a policy's rank and rules. Its own object, and each of its endpoints objects, is
// written at another time: no rule is ever at the rank of others.
func TestClusterPolicyIsRanked(t *testing.T) {
	const denied, accepted = "E:10.2.0.1 TCP/80", "E:10.1.0.1 TCP/80" // by other and both versions; by the new one
	everything := v1alpha1.Subject{Namespaces: pointer(selectorOf(""))}
	object := func(priority int32) apis.Object {
		return makeCNP("c", everything, func(p *v1alpha1.ClusterNetworkPolicy) { p.Spec.Priority = priority })
	}
	chunk := func(name string, priority int32, cidr string) apis.Object {
		return makeCPE(name, "c", func(o *v1alpha1.ClusterPolicyEndpoint) {
			o.Spec.Priority = priority
			o.Spec.Egress = []v1alpha1.ClusterEndpointInfo{{CIDR: cidr, Action: v1alpha1.ActionAccept}}
		})
	}
	edits := []apis.Object{object(10), chunk("c-1", 10, "10.1.0.0/16"), chunk("c-2", 10, "10.1.2.0/24")}
	for _, order := range [][]int{{0, 1, 2}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}} {
		s := newStage(t)
		s.Synced()
		s.Upsert(
			makeCNP("other", everything, func(p *v1alpha1.ClusterNetworkPolicy) { p.Spec.Priority = 50 }),
			makeCPE("other-1", "other", func(o *v1alpha1.ClusterPolicyEndpoint) {
				o.Spec.Priority = 50
				o.Spec.Egress = []v1alpha1.ClusterEndpointInfo{{CIDR: "10.0.0.0/8", Action: v1alpha1.ActionDeny}}
			}),
			object(100), chunk("c-1", 100, "0.0.0.0/0"), chunk("c-2", 100, "10.2.0.0/16"))
		s.running("app=a")
		s.want("before", "app=a", accepted, "create=D running=D")
		for n, i := range order {
			s.want("between", "app=a", denied, "create=D running=D")
			s.Upsert(edits[i])
			if got := len(s.desired("app=a").Problems); (got == 0) != (n == 2) {
				t.Errorf("%v, step %d: %d problems: %v", order, n, got, s.desired("app=a").Problems)
			}
			s.pass(time.Second)
		}
		s.want("after", "app=a", denied, "create=D running=D")
		s.want("after", "app=a", accepted, "create=A running=A")
	}
}
