package apis

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/latch-cni/latch/cmd/latchd/apis/v1alpha1"
)

// TestRefOf names objects without a kind, as informers deliver them.
func TestRefOf(t *testing.T) {
	meta := metav1.ObjectMeta{Namespace: "t1", Name: "x"}
	for want, o := range map[string]Object{
		"Pod t1/x":                      &corev1.Pod{ObjectMeta: meta},
		"Namespace x":                   &corev1.Namespace{ObjectMeta: meta},
		"NetworkPolicy t1/x":            &networkingv1.NetworkPolicy{ObjectMeta: meta},
		"PolicyEndpoint t1/x":           &v1alpha1.PolicyEndpoint{ObjectMeta: meta},
		"ApplicationNetworkPolicy t1/x": &v1alpha1.ApplicationNetworkPolicy{ObjectMeta: meta},
		"ClusterPolicyEndpoint x":       &v1alpha1.ClusterPolicyEndpoint{ObjectMeta: meta},
		"ClusterNetworkPolicy x":        &v1alpha1.ClusterNetworkPolicy{ObjectMeta: meta},
	} {
		ref, ok := RefOf(o)
		if !ok || ref.String() != want {
			t.Errorf("RefOf(%T) = %q, %v, want %q", o, ref, ok, want)
		}
	}
	if ref, ok := RefOf(&corev1.Service{}); ok {
		t.Errorf("RefOf(Service) = %q, want none", ref)
	}
}

func TestProblemString(t *testing.T) {
	p := Problem{Object: "Pod t1/x", File: "a.yaml", Line: 7, Field: "metadata.labels", Message: "no map"}
	if got, want := p.String(), "a.yaml:7: Pod t1/x: metadata.labels: no map"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := (Problem{Message: "gone"}).String(); got != "gone" {
		t.Errorf("got %q, want %q", got, "gone")
	}
}
