package v1alpha1

import "strconv"

// Share has rules with equal lists of ports hold one list: of 100,000 rules most have, and the lists are most
// of their memory. They must not be changed after it.
func (s *PolicyEndpointSpec) Share() {
	known := lists{}
	for _, rules := range [][]EndpointInfo{s.Ingress, s.Egress} {
		for i := range rules {
			rules[i].Ports = known.share(rules[i].Ports)
		}
	}
}

// Share is that of PolicyEndpointSpec, for the rules of a cluster policy.
func (s *ClusterPolicyEndpointSpec) Share() {
	known := lists{}
	for _, rules := range [][]ClusterEndpointInfo{s.Ingress, s.Egress} {
		for i := range rules {
			rules[i].Ports = known.share(rules[i].Ports)
		}
	}
}

// lists are lists of ports by their content.
type lists map[string][]Port

// share returns the known list that is equal; the first one becomes known.
func (l lists) share(ports []Port) []Port {
	if len(ports) == 0 {
		return ports
	}
	var buf [64]byte
	key := buf[:0]
	for _, p := range ports {
		if p.Protocol != nil {
			key = strconv.AppendQuote(key, string(*p.Protocol))
		}
		for _, n := range []*int32{p.Port, p.EndPort} {
			key = append(key, ':')
			if n != nil {
				key = strconv.AppendInt(key, int64(*n), 10)
			}
		}
		key = append(key, ';')
	}
	if first, ok := l[string(key)]; ok {
		return first
	}
	l[string(key)] = ports
	return ports
}
