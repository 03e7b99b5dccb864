package world

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"

	"github.com/latch-cni/latch/cmd/latchd/apis"
	"github.com/latch-cni/latch/cmd/latchd/apis/v1alpha1"
	"github.com/latch-cni/latch/shared/policy"
)

// maxProblems bounds what is reported about one object.
const maxProblems = 16

// converter turns an endpoints object into a chunk and collects what is wrong with it.
type converter struct {
	object   string
	problems []apis.Problem
	more     int
	domains  int  // rules that match nothing, as they name a domain
	causes   bool // only problems are wanted, and not what is done about them
	ports    map[*v1alpha1.Port]convertedPorts
}

// convertedPorts is what a list of ports became. Lists are shared by rules, which share this, too.
type convertedPorts struct {
	length int // of the list
	ports  []policy.Ports
}

// What is done about what cannot be read. A rule of a policy that only allows is left out, which is closed.
const (
	leftOut    = "the rule is left out"
	listedOnly = "without the policy's own object only the pods that are listed are selected"
)

// report notes what cannot be read or is of no use, and what is done about it.
func (c *converter) report(field string, err error, effect string) {
	if len(c.problems) == maxProblems {
		c.more++
		return
	}
	message := err.Error()
	if !c.causes {
		message += ": " + effect
	}
	c.problems = append(c.problems, apis.Problem{Object: c.object, Field: field, Message: message})
}

// done returns all problems.
func (c *converter) done() []apis.Problem {
	last := func(format string, args ...any) {
		c.problems = append(c.problems, apis.Problem{Object: c.object, Message: fmt.Sprintf(format, args...)})
	}
	if c.more > 0 {
		last("%d more rules are malformed", c.more)
	}
	if c.domains > 0 && !c.causes {
		last("%d rules name a domain, which is not supported: they match nothing", c.domains)
	}
	return c.problems
}

func convertPolicyEndpoint(o *v1alpha1.PolicyEndpoint, ref apis.Ref, opts Options) *chunk {
	c := converter{object: ref.String()}
	out := &chunk{name: o.Name}
	out.isolates = c.isolation("spec.podIsolation", o.Spec.PodIsolation)
	out.rules[policy.Ingress] = c.rules("spec.ingress", o.Spec.Ingress)
	out.rules[policy.Egress] = c.rules("spec.egress", o.Spec.Egress)
	out.egress = len(o.Spec.Egress) > 0
	var err error
	if out.selector, err = podSelector(o.Spec.PodSelector); err != nil {
		c.report("spec.podSelector", err, listedOnly)
	}
	out.listed, out.local = c.listing(o.Spec.PodSelectorEndpoints, opts)
	out.lists = slices.ContainsFunc(o.Spec.PodSelectorEndpoints, func(p v1alpha1.PodEndpoint) bool { return p.Namespace == o.Namespace })
	out.problems = c.done()
	return out
}

func convertClusterPolicyEndpoint(o *v1alpha1.ClusterPolicyEndpoint, ref apis.Ref, opts Options) *chunk {
	c := converter{object: ref.String()}
	out := &chunk{name: o.Name, rank: rank{o.Spec.Tier, o.Spec.Priority}}
	c.rank(out.rank)
	out.cluster[policy.Ingress] = c.clusterRules("spec.ingress", o.Spec.Ingress)
	out.cluster[policy.Egress] = c.clusterRules("spec.egress", o.Spec.Egress)
	var err error
	if out.selector, err = subjectSelector(o.Spec.Subject); err != nil {
		c.report("spec.subject", err, listedOnly)
	}
	out.listed, out.local = c.listing(o.Spec.PodSelectorEndpoints, opts)
	out.problems = c.done()
	return out
}

// isolation reads directions. One that is not known closes both.
func (c *converter) isolation(field string, types []networkingv1.PolicyType) [2]bool {
	var out [2]bool
	for _, t := range types {
		switch t {
		case networkingv1.PolicyTypeIngress:
			out[policy.Ingress] = true
		case networkingv1.PolicyTypeEgress:
			out[policy.Egress] = true
		default:
			out = [2]bool{true, true}
			c.report(field, fmt.Errorf("%q is no direction", t), "both are isolated")
		}
	}
	return out
}

// listing returns the listed pods with their addresses, and the names of those on this node. Pods with
// the address of their host are in its network and no business of policy. An address that cannot be read
// may be any, or a pod would be left out for it.
func (c *converter) listing(pods []v1alpha1.PodEndpoint, opts Options) (map[podName]string, []podName) {
	listed := make(map[podName]string, len(pods))
	var local []podName
	for i, p := range pods {
		c.anyUnless(&p.HostIP, i, "hostIP", "the pod may be on this node")
		c.anyUnless(&p.PodIP, i, "podIP", "the pod of this name is selected whatever its address")
		if p.HostIP != "" && p.PodIP == p.HostIP || p.Name == "" || !isNodeIP(p.HostIP, opts) {
			continue
		}
		name := podName{p.Namespace, p.Name}
		if _, twice := listed[name]; !twice {
			local = append(local, name)
		}
		listed[name] = p.PodIP
	}
	return listed, local
}

// anyUnless makes an address of a listed pod that cannot be read an empty one, which is any.
func (c *converter) anyUnless(addr *string, i int, field, effect string) {
	if *addr == "" {
		return
	}
	if _, err := netip.ParseAddr(*addr); err != nil {
		c.report(fmt.Sprintf("spec.podSelectorEndpoints[%d].%s", i, field), fmt.Errorf("%q is no address", *addr), effect)
		*addr = ""
	}
}

// place is a rule in a list of its object. Only that of a rule with a problem is written out.
type place struct {
	list  string
	index int
}

// String is the place as problems name it.
func (p place) String() string { return fmt.Sprintf("%s[%d]", p.list, p.index) }

func (c *converter) rules(field string, in []v1alpha1.EndpointInfo) []policy.Rule {
	var out []policy.Rule
	if !c.causes {
		out = make([]policy.Rule, 0, len(in))
	}
	for i, r := range in {
		at := place{field, i}
		if r.CIDR == "" && r.DomainName != "" {
			c.domains++
			continue
		}
		block, field, err := parsePeer(r.CIDR, r.DomainName)
		if err != nil {
			c.report(at.String()+field, err, leftOut)
			continue
		}
		except, ok := c.except(at, block, r.Except)
		if !ok {
			continue
		}
		ports, field, err := c.convertPorts(r.Ports)
		if err != nil {
			c.report(at.String()+field, err, leftOut)
			continue
		}
		if c.causes {
			continue
		}
		out = append(out, policy.Rule{
			Peer:     policy.Peer{Block: block, Except: except},
			AllPorts: len(ports) == 0, Ports: ports,
		})
	}
	return out
}

// parsePeer reads the block of a rule that names no domain. On an error it also returns the field.
func parsePeer(cidr, domain string) (block netip.Prefix, field string, err error) {
	switch {
	case cidr == "":
		return block, "", errors.New("has neither cidr nor domainName")
	case domain != "":
		return block, "", errors.New("has both cidr and domainName")
	}
	block, err = parsePrefix(cidr)
	return block, ".cidr", err
}

// mappedError is a block that can be read, and that no packet matches.
type mappedError string

func (e mappedError) Error() string {
	return fmt.Sprintf("%q is an IPv4 block written as IPv6, which no packet matches", string(e))
}

// parsePrefix reads a block or a bare address, and masks host bits.
func parsePrefix(s string) (netip.Prefix, error) {
	var p netip.Prefix
	var err error
	if strings.Contains(s, "/") {
		p, err = netip.ParsePrefix(s)
	} else {
		var a netip.Addr
		if a, err = netip.ParseAddr(s); err == nil && a.Zone() == "" {
			p = netip.PrefixFrom(a, a.BitLen())
		}
	}
	switch {
	case err != nil || !p.IsValid():
		return p, fmt.Errorf("%q is no block of addresses", s)
	case p.Addr().Is4In6():
		return p, mappedError(s)
	}
	return p.Masked(), nil
}

// except reads exceptions and leaves out those that take nothing away. It returns false if one cannot be read.
func (c *converter) except(at place, block netip.Prefix, in []string) (out []netip.Prefix, ok bool) {
	for i, s := range in {
		p, err := parsePrefix(s)
		if err != nil {
			c.report(fmt.Sprintf("%v.except[%d]", at, i), err, leftOut)
			return nil, false
		}
		if !p.Overlaps(block) {
			if !c.causes { // it can be read, and does no harm
				c.report(fmt.Sprintf("%v.except[%d]", at, i), fmt.Errorf("%q is not in %v", s, block), "it takes nothing away")
			}
			continue
		}
		out = append(out, p)
	}
	return out, true
}

// convertPorts is the function convertPorts for a list that may have been converted before.
func (c *converter) convertPorts(in []v1alpha1.Port) (out []policy.Ports, field string, err error) {
	if len(in) == 0 {
		return nil, "", nil
	}
	if known, ok := c.ports[&in[0]]; ok && known.length == len(in) {
		return known.ports, "", nil
	}
	out, field, err = convertPorts(in)
	if err == nil && !c.causes {
		if c.ports == nil {
			c.ports = map[*v1alpha1.Port]convertedPorts{}
		}
		c.ports[&in[0]] = convertedPorts{len(in), out}
	}
	return out, field, err
}

// convertPorts reads a list of ports. An empty one is every protocol. On an error it also returns the
// field.
func convertPorts(in []v1alpha1.Port) (out []policy.Ports, field string, err error) {
	for i, p := range in {
		at := func(name string) string { return fmt.Sprintf(".ports[%d].%s", i, name) }
		proto, ok := protocol(p.Protocol)
		if !ok {
			return nil, at("protocol"), fmt.Errorf("%q is no protocol with ports", *p.Protocol)
		}
		switch {
		case p.Port == nil && p.EndPort != nil:
			return nil, at("endPort"), fmt.Errorf("is %d without a port", *p.EndPort)
		case p.Port == nil:
			out = append(out, policy.Ports{Protocol: proto, First: 0, Last: 65535})
			continue
		case *p.Port < 0 || *p.Port > 65535:
			return nil, at("port"), fmt.Errorf("%d is not in 0..65535", *p.Port)
		}
		last := *p.Port
		if p.EndPort != nil {
			last = *p.EndPort
		}
		if last < *p.Port || last > 65535 {
			return nil, at("endPort"), fmt.Errorf("%d is not in %d..65535", last, *p.Port)
		}
		out = append(out, policy.Ports{Protocol: proto, First: uint16(*p.Port), Last: uint16(last)})
	}
	return out, "", nil
}

func protocol(p *corev1.Protocol) (policy.Protocol, bool) {
	if p == nil || *p == "" {
		return policy.TCP, true // the API's default
	}
	switch *p {
	case corev1.ProtocolTCP:
		return policy.TCP, true
	case corev1.ProtocolUDP:
		return policy.UDP, true
	case corev1.ProtocolSCTP:
		return policy.SCTP, true
	}
	return 0, false
}
