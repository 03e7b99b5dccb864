package world

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/latch-cni/latch/cmd/latchd/apis"
	"github.com/latch-cni/latch/cmd/latchd/apis/v1alpha1"
)

// A policy in a namespace of which nothing is known acts on nothing, which is told by the object that was
// written, until the namespace or a pod of it comes. An API server knows all namespaces.
func TestPoliciesInNamespacesThatAreNotKnown(t *testing.T) {
	ns := func(name string) *corev1.Namespace {
		return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	}
	mistyped := func(o *networkingv1.NetworkPolicy) { o.Namespace = "shpo" }
	endpoint := makePE("p-1", "I")
	endpoint.Namespace, endpoint.Spec.PolicyRef.Namespace = "shpo", "shpo"
	listing := makePE("p-1", "I")
	listing.Namespace, listing.Spec.PolicyRef.Namespace = "shpo", "shpo"
	listing.Spec.PodSelectorEndpoints = []v1alpha1.PodEndpoint{{Namespace: "shpo", Name: "elsewhere", PodIP: "10.0.0.9", HostIP: "10.0.0.1"}}
	pod := makePod("a", "app=a")
	pod.Namespace = "shpo"

	const said = `metadata.namespace: acts on nothing: no Namespace and no Pod of namespace "shpo" is known`
	for _, test := range []struct {
		name    string
		opts    Options
		objects []apis.Object
		want    []string
	}{
		{"nothing known", Options{}, []apis.Object{makeNP("p", "", "I", mistyped)}, []string{"NetworkPolicy shpo/p: " + said}},
		{"a near name known", Options{}, []apis.Object{ns("shop"), makeNP("p", "", "I", mistyped)}, []string{"NetworkPolicy shpo/p: " + said + `; did you mean "shop"?`}},
		{"endpoints objects only", Options{}, []apis.Object{endpoint}, []string{"PolicyEndpoint shpo/p-1: " + said}},
		{"with its policy", Options{}, []apis.Object{endpoint, makeNP("p", "", "I", mistyped)}, []string{"NetworkPolicy shpo/p: " + said}},
		{"its namespace known", Options{}, []apis.Object{ns("shpo"), makeNP("p", "", "I", mistyped)}, nil},
		{"a pod known", Options{}, []apis.Object{pod, makeNP("p", "", "I", mistyped)}, nil},
		{"a pod of another node listed", Options{NodeIPs: []netip.Addr{netip.MustParseAddr("10.0.0.2")}}, []apis.Object{listing}, nil},
		{"by an API server", Options{PodsComplete: true}, []apis.Object{makeNP("p", "", "I", mistyped)}, nil},
	} {
		w := New(test.opts)
		w.Replace(test.objects)
		if early := w.nowhereSaid(); len(early) > 0 {
			t.Errorf("%s: told before everything is read: %q", test.name, early)
		}
		w.Synced()
		if diff := cmp.Diff(test.want, w.nowhereSaid()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", test.name, diff)
		}
	}
}

// nowhereSaid are the problems with namespaces.
func (w *World) nowhereSaid() (said []string) {
	for _, p := range w.Problems() {
		if p.Field == "metadata.namespace" {
			said = append(said, p.String())
		}
	}
	return said
}
