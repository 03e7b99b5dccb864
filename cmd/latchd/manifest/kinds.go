package manifest

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/latch-cni/latch/cmd/latchd/apis"
	"github.com/latch-cni/latch/cmd/latchd/apis/v1alpha1"
)

type kindOf struct {
	group, version string
	new            func() apis.Object
}

var awsGroup, awsVersion = v1alpha1.GroupVersion.Group, v1alpha1.GroupVersion.Version

var kinds = map[string]kindOf{
	apis.KindPod:                      {"", "v1", func() apis.Object { return &corev1.Pod{} }},
	apis.KindNamespace:                {"", "v1", func() apis.Object { return &corev1.Namespace{} }},
	apis.KindNetworkPolicy:            {"networking.k8s.io", "v1", func() apis.Object { return &networkingv1.NetworkPolicy{} }},
	apis.KindPolicyEndpoint:           {awsGroup, awsVersion, func() apis.Object { return &v1alpha1.PolicyEndpoint{} }},
	apis.KindClusterPolicyEndpoint:    {awsGroup, awsVersion, func() apis.Object { return &v1alpha1.ClusterPolicyEndpoint{} }},
	apis.KindApplicationNetworkPolicy: {awsGroup, awsVersion, func() apis.Object { return &v1alpha1.ApplicationNetworkPolicy{} }},
	apis.KindClusterNetworkPolicy:     {awsGroup, awsVersion, func() apis.Object { return &v1alpha1.ClusterNetworkPolicy{} }},
}

// maker returns what makes an empty object of a kind, or nil when the kind does not matter here. A
// kind of ours in a version that is not, or mistyped, is an error in a field of the manifest: to pass
// over it would be to leave a policy out.
func maker(apiVersion, kind string) (newObject func() apis.Object, field string, err error) {
	k, ok := kinds[kind]
	group, version, found := strings.Cut(apiVersion, "/")
	if !found {
		group, version = "", apiVersion
	}
	if !ok {
		if meant := nearest(kind, kindNames); meant != "" && isNearGroup(group, kindNames[meant]) {
			return nil, "kind", fmt.Errorf("%q is not known%s", kind, didYouMean(meant))
		}
		return nil, "", nil
	}
	if k.group != group {
		if isNearGroup(group, k.group) {
			return nil, "apiVersion", fmt.Errorf("%q has no kind %s%s", apiVersion, kind, didYouMean(k.apiVersion()))
		}
		return nil, "", nil
	}
	if k.version != version {
		return nil, "apiVersion", fmt.Errorf("version %q of kind %s is not known, want %q", version, kind, k.version)
	}
	return k.new, "", nil
}

// Knows says whether a kind is one that is read.
func Knows(kind string) bool { _, ok := kinds[kind]; return ok }

func (k kindOf) apiVersion() string { return strings.TrimPrefix(k.group+"/"+k.version, "/") }

// kindNames has the group of each kind, and of its List, but for PodList: NodeList is not a typo of it.
var kindNames = func() map[string]string {
	names := map[string]string{"List": ""}
	for name, k := range kinds {
		names[name] = k.group
		if len(name) > short {
			names[name+"List"] = k.group
		}
	}
	return names
}()

// isNearGroup tells whether a kind that is not in a group was probably meant to be in the one that has
// it: it is mistyped, or that of another kind of ours. Other projects have kinds with our names, or
// nearly.
func isNearGroup(group, want string) bool {
	for _, k := range kinds {
		if group == k.group {
			return true
		}
	}
	return edits(group, want) <= maxEdits
}

func didYouMean(name string) string { return fmt.Sprintf("; did you mean %q?", name) }

// listOf returns the kind of a List's items, which is empty for a plain List: its items say it.
func listOf(kind string) (string, bool) {
	item, ok := strings.CutSuffix(kind, "List")
	if !ok {
		return "", false
	}
	if _, known := kinds[item]; item != "" && !known {
		return "", false
	}
	return item, true
}

// check completes an object as an API server would, and returns false with the reason if one would
// have refused it.
func check(o apis.Object) (apis.Problem, bool) {
	if o.GetName() == "" {
		return apis.Problem{Field: "metadata.name", Message: "is missing"}, false
	}
	switch o.(type) {
	case *corev1.Namespace, *v1alpha1.ClusterPolicyEndpoint, *v1alpha1.ClusterNetworkPolicy:
		o.SetNamespace("")
	default:
		if o.GetNamespace() == "" {
			o.SetNamespace(metav1.NamespaceDefault)
		}
	}
	switch o := o.(type) {
	case *networkingv1.NetworkPolicy:
		return checkSelector("spec.podSelector", &o.Spec.PodSelector)
	case *v1alpha1.ApplicationNetworkPolicy:
		return checkSelector("spec.podSelector", &o.Spec.PodSelector)
	case *v1alpha1.ClusterNetworkPolicy:
		return checkSubject(&o.Spec.Subject)
	case *v1alpha1.PolicyEndpoint:
		ref := &o.Spec.PolicyRef
		if ref.Name == "" {
			return apis.Problem{Field: "spec.policyRef.name", Message: "is missing"}, false
		}
		if ref.Namespace != "" && ref.Namespace != o.Namespace {
			return apis.Problem{
				Field:   "spec.policyRef.namespace",
				Message: fmt.Sprintf("is %q, but the object is in namespace %q", ref.Namespace, o.Namespace),
			}, false
		}
		ref.Namespace = o.Namespace
		return checkSelector("spec.podSelector", o.Spec.PodSelector)
	case *v1alpha1.ClusterPolicyEndpoint:
		if o.Spec.PolicyRef.Name == "" {
			return apis.Problem{Field: "spec.policyRef.name", Message: "is missing"}, false
		}
		if o.Spec.Subject != nil {
			return checkSubject(o.Spec.Subject)
		}
	}
	return apis.Problem{}, true
}

func checkSubject(s *v1alpha1.Subject) (apis.Problem, bool) {
	switch {
	case s.Namespaces != nil && s.Pods != nil:
		return apis.Problem{Field: "spec.subject", Message: "has both namespaces and pods"}, false
	case s.Namespaces != nil:
		return checkSelector("spec.subject.namespaces", s.Namespaces)
	case s.Pods != nil:
		if p, ok := checkSelector("spec.subject.pods.namespaceSelector", &s.Pods.NamespaceSelector); !ok {
			return p, false
		}
		return checkSelector("spec.subject.pods.podSelector", &s.Pods.PodSelector)
	}
	return apis.Problem{Field: "spec.subject", Message: "has neither namespaces nor pods"}, false
}

func checkSelector(field string, s *metav1.LabelSelector) (apis.Problem, bool) {
	if _, err := metav1.LabelSelectorAsSelector(s); err != nil {
		return apis.Problem{Field: field, Message: err.Error()}, false
	}
	return apis.Problem{}, true
}
