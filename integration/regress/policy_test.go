package regress

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/latch-cni/latch/cmd/latchd/apis/v1alpha1"
)

// policyEndpoint is one endpoints object, written as
//
//	NAMESPACE/NAME LABEL=VALUE ISOLATES
//	I PEER [except BLOCK,...] [PORT ...]
//	E PEER ...
//
// ISOLATES is I, E, IE or -. A peer is a block, an address, or a name of the ground, which stands for
// a rule for each of its addresses. A port is PROTOCOL, PROTOCOL/N, PROTOCOL/N-M, or N without a
// protocol; no port is every protocol. Of NAMESPACE/NAME#CHUNK, NAME is the policy's.
type policyEndpoint struct {
	v1alpha1.PolicyEndpoint
}

func (g *ground) policy(text string) *policyEndpoint {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	head := strings.Fields(lines[0])
	if len(head) != 3 {
		panic(fmt.Sprintf("regress: policy %q", lines[0]))
	}
	namespace, name, _ := strings.Cut(head[0], "/")
	policy, _, _ := strings.Cut(name, "#")
	p := &policyEndpoint{}
	p.TypeMeta = metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "PolicyEndpoint"}
	p.Namespace, p.Name = namespace, strings.ReplaceAll(name, "#", "-")
	p.Spec.PolicyRef = v1alpha1.PolicyReference{Namespace: namespace, Name: policy}
	p.Spec.PodSelector = &metav1.LabelSelector{}
	if key, value, ok := strings.Cut(head[1], "="); ok {
		p.Spec.PodSelector.MatchLabels = map[string]string{key: value}
	}
	if strings.Contains(head[2], "I") {
		p.Spec.PodIsolation = append(p.Spec.PodIsolation, networkingv1.PolicyTypeIngress)
	}
	if strings.Contains(head[2], "E") {
		p.Spec.PodIsolation = append(p.Spec.PodIsolation, networkingv1.PolicyTypeEgress)
	}
	for _, line := range lines[1:] {
		p.rule(g, strings.Fields(line))
	}
	return p
}

func (p *policyEndpoint) rule(g *ground, words []string) {
	if len(words) == 0 {
		return
	}
	to := map[string]*[]v1alpha1.EndpointInfo{"I": &p.Spec.Ingress, "E": &p.Spec.Egress}[words[0]]
	peer, words := words[1], words[2:]
	var except []string
	if len(words) > 1 && words[0] == "except" {
		except, words = strings.Split(words[1], ","), words[2:]
	}
	var ports []v1alpha1.Port
	for _, w := range words {
		ports = append(ports, port(w))
	}
	blocks := []string{peer}
	if !strings.Contains(peer, "/") {
		blocks = nil
		for _, a := range g.addresses(peer) {
			blocks = append(blocks, netip.PrefixFrom(a, a.BitLen()).String())
		}
	}
	for _, b := range blocks {
		*to = append(*to, v1alpha1.EndpointInfo{CIDR: b, Except: except, Ports: ports})
	}
}

// port reads PROTOCOL, PROTOCOL/N, PROTOCOL/N-M or N.
func port(s string) (p v1alpha1.Port) {
	name, numbers, slash := strings.Cut(s, "/")
	if !slash && name[0] >= '0' && name[0] <= '9' {
		name, numbers = "", name
	}
	if name != "" {
		proto := corev1.Protocol(strings.ToUpper(name))
		p.Protocol = &proto
	}
	if numbers == "" {
		return p
	}
	first, last, isRange := strings.Cut(numbers, "-")
	p.Port = number(first)
	if isRange {
		p.EndPort = number(last)
	}
	return p
}

func number(s string) *int32 {
	n, err := strconv.ParseInt(s, 10, 32)
	if err != nil {
		panic(fmt.Sprintf("regress: port %q", s))
	}
	v := int32(n)
	return &v
}

// lists adds pods to podSelectorEndpoints.
func (p *policyEndpoint) lists(pods ...*pod) *policyEndpoint {
	for _, pod := range pods {
		p.Spec.PodSelectorEndpoints = append(p.Spec.PodSelectorEndpoints, v1alpha1.PodEndpoint{
			HostIP: pod.g.names["node"][0].String(), PodIP: pod.Addr4.String(), Name: pod.Spec.Name, Namespace: pod.Spec.Namespace,
		})
	}
	return p
}

func (p *policyEndpoint) file() string { return policyFile(p.Namespace + "/" + p.Name) }

func policyFile(key string) string {
	return "pe-" + strings.NewReplacer("/", "-", "#", "-").Replace(key) + ".json"
}

func (p *policyEndpoint) manifest() []byte { return mustJSON(p.PolicyEndpoint) }

// documents joins manifests to one file, so that they come into force as one change.
func documents(objects ...[]byte) []byte {
	var out []byte
	for _, o := range objects {
		out = append(append(out, "---\n"...), o...)
	}
	return out
}

// in6 writes a policy or a table of IPv4 in IPv6: each block moves, with its length, into the last 32
// bits of one /96. Names stay.
func in6(text string) string {
	fields := strings.FieldsFunc(text, func(r rune) bool { return strings.ContainsRune(" \t\n,>", r) })
	blocks := map[string]string{}
	for _, f := range fields {
		if b, err := netip.ParsePrefix(f); err == nil && b.Addr().Is4() {
			blocks[f] = fmt.Sprintf("%s/%d", addr6(b.Addr()), 96+b.Bits())
		} else if a, err := netip.ParseAddr(f); err == nil && a.Is4() {
			blocks[f] = addr6(a).String()
		}
	}
	order := slices.SortedFunc(maps.Keys(blocks), func(a, b string) int { return len(b) - len(a) })
	var pairs []string
	for _, b := range order { // the longest first: one may begin another
		pairs = append(pairs, b, blocks[b])
	}
	return strings.NewReplacer(pairs...).Replace(text)
}

func addr6(a netip.Addr) netip.Addr {
	out := netip.MustParseAddr("2001:db8:cafe::").As16()
	four := a.As4()
	copy(out[12:], four[:])
	return netip.AddrFrom16(out)
}
