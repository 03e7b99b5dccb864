package v1alpha1

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
)

// What is shared says the same as before, and only equal lists are one.
func TestShare(t *testing.T) {
	p := func(protocol corev1.Protocol, ports ...int32) Port {
		out := Port{Protocol: &protocol}
		if protocol == "-" {
			out.Protocol = nil
		}
		if len(ports) > 0 {
			out.Port = &ports[0]
		}
		if len(ports) > 1 {
			out.EndPort = &ports[1]
		}
		return out
	}
	lists := func() [][]Port {
		return [][]Port{
			{p("TCP", 80)}, {p("TCP", 80), p("TCP", 81)}, {p("TCP", 80, 81)}, {p("TCP")}, {p("")}, {p("-")}, {p("-", 80)}, {p("UDP", 80)},
			{p("TCP", 8), p("-", 0)}, {}, nil,
		}
	}
	var o PolicyEndpoint
	s := &o.Spec
	for range 3 {
		for i, l := range lists() {
			s.Ingress = append(s.Ingress, EndpointInfo{CIDR: "10.0.0.1", Ports: l})
			s.Egress = append(s.Egress, EndpointInfo{CIDR: "10.0.0.2", Ports: lists()[i]})
		}
	}
	want := o.DeepCopyObject()
	s.Share()
	if diff := cmp.Diff(want, &o); diff != "" {
		t.Errorf("want -, got +:\n%s", diff)
	}
	first := map[*Port]bool{}
	for _, r := range append(s.Ingress, s.Egress...) {
		if len(r.Ports) > 0 {
			first[&r.Ports[0]] = true
		}
	}
	if want := len(lists()) - 2; len(first) != want {
		t.Errorf("%d lists are held, want %d", len(first), want)
	}
}
