package cluster

import (
	"errors"
	"testing"
)

// testConf checks that the API server takes the manifests as they are, and what the ServiceAccount may
// do: it reads what latchd needs and nothing else.
func testConf(t *testing.T, cp *controlPlane) {
	for _, file := range []string{"daemonset.yaml", "uninstall/daemonset.yaml", "samples/shop.yaml"} {
		for _, o := range objectsOf(t, "../../conf/"+file) {
			if ns, ok := o["metadata"].(object)["namespace"].(string); ok {
				if err := cp.apply(object{"apiVersion": "v1", "kind": "Namespace", "metadata": object{"name": ns}}); err != nil {
					t.Fatal(err)
				}
			}
			if err := cp.accepts(o); err != nil {
				t.Errorf("%s: %v", file, err)
			}
		}
	}
	latchd := &api{base: cp.base, token: cp.serviceAccountToken(t), http: cp.http}
	aws := "/apis/networking.k8s.aws/v1alpha1/"
	for _, path := range []string{
		"/api/v1/pods", "/api/v1/namespaces", "/api/v1/nodes", "/apis/networking.k8s.io/v1/networkpolicies",
		aws + "policyendpoints", aws + "clusterpolicyendpoints", aws + "applicationnetworkpolicies", aws + "clusternetworkpolicies",
		"/apis/networking.k8s.aws/v1alpha1",
	} {
		if err := latchd.get(path, nil); err != nil {
			t.Error(err)
		}
	}
	forbidden := func(what string, err error) {
		t.Helper()
		var r *refusal
		if !errors.As(err, &r) || r.code != 403 {
			t.Errorf("%s: %v, want forbidden", what, err)
		}
	}
	forbidden("read secrets", latchd.get("/api/v1/secrets", nil))
	forbidden("write a policy", latchd.create("/apis/networking.k8s.io/v1/namespaces/default/networkpolicies", object{
		"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": object{"name": "x"}, "spec": object{"podSelector": object{}}}, nil))
	forbidden("write the status of pods", latchd.do("PATCH", "/api/v1/namespaces/default/pods/x/status", "application/merge-patch+json", object{}, nil))
	forbidden("delete pods", latchd.do("DELETE", "/api/v1/namespaces/default/pods", "", nil, nil))

	for _, folder := range []string{"conf", "conf/uninstall"} { // what an operator applies
		if _, err := cp.kubectl(t, []string{"apply", "--server-side", "-k", "../../" + folder}); err != nil {
			t.Error(err)
		}
	}

	// The API server fills in what the CRD says.
	pe := object{"apiVersion": "networking.k8s.aws/v1alpha1", "kind": "PolicyEndpoint", "metadata": object{"name": "defaults", "namespace": "default"},
		"spec": object{"policyRef": object{"name": "p", "namespace": "default"},
			"ingress": []object{{"cidr": "10.0.0.1", "ports": []object{{"port": 80}}}}}}
	if err := cp.apply(pe); err != nil {
		t.Fatal(err)
	}
	var got struct {
		Spec struct {
			Ingress []struct {
				Ports []struct{ Protocol string }
			}
		}
	}
	if err := cp.get(pathOf(pe), &got); err != nil {
		t.Fatal(err)
	}
	if p := got.Spec.Ingress[0].Ports[0].Protocol; p != "TCP" {
		t.Errorf("protocol %q, want the default TCP", p)
	}
	if err := cp.remove(pathOf(pe)); err != nil {
		t.Error(err)
	}
}
