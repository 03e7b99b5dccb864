package cluster

import (
	"testing"
	"time"
)

// testNamespaceLabels lets a cluster policy select by the labels of the namespace, from the first packet
// of a pod in a new namespace on.
func testNamespaceLabels(t *testing.T, cp *controlPlane) {
	n := newNode(t, cp, nodeOptions{})
	remove := n.applyClusterPolicy(n.ns, object{"zone": n.ns})
	defer remove()
	a := n.pod("a", object{"app": "a"}).add()
	b := n.pod("b", object{"app": "b"}).add().serve(8080)
	a.stays("namespace without the label", allow, b, 8080, 2)
	n.labelNamespace(object{"zone": n.ns})
	a.becomes("label added", deny, b, 8080)
	c := n.pod("c", object{"app": "c"}).add()
	a.stays("pod that starts selected", deny, c, 8080, 2)
	n.labelNamespace(object{"zone": nil})
	a.becomes("label removed", allow, b, 8080)

	// The namespace and its pod are created together: the pod is never taken for one of no namespace.
	home := n.ns
	for i := range 10 {
		n.ns = home + "-" + string(rune('a'+i))
		n.must(cp.apply(object{"apiVersion": "v1", "kind": "Namespace", "metadata": object{"name": n.ns, "labels": object{"zone": home}}}))
		d := n.pod("d", object{"app": "d"}).add()
		a.stays("pod of a namespace that was just created", deny, d, 8080, 1)
		d.forget()
		d.del()
		n.must(cp.remove("/api/v1/namespaces/" + n.ns))
	}
	n.ns = home
}

// testSameName re-creates a pod under its name: the new one never gets what the old one had.
func testSameName(t *testing.T, cp *controlPlane) {
	n := newNode(t, cp, nodeOptions{})
	a := n.pod("a", object{"app": "a"}).add()
	n.newPolicy("deny", object{"app": "shut"}).apply()
	b := n.pod("b", object{"app": "open"}).add().serve(8080)
	for i := range 10 {
		want := []string{deny, allow}[i%2]
		label := []string{"shut", "open"}[i%2]
		b.forget()
		if i%3 != 0 { // the old sandbox goes before or after
			b.del()
		}
		old := b.Sandbox
		b.create(object{"app": label})
		b.add()
		a.stays("re-created as "+label, want, b, 8080, 1)
		if old != nil {
			n.must(n.DelPod(t.Context(), old))
		}
		a.stays("re-created as "+label+", old sandbox gone", want, b, 8080, 1)
	}

	// A pod that the API server does not have is not let in on its predecessor's record.
	b.forget()
	b.del()
	begin := time.Now()
	b.uid = "00000000-0000-0000-0000-000000000000"
	if err := b.tryAdd(); err == nil {
		t.Error("ADD of a pod that nobody knows succeeded")
	}
	if took := time.Since(begin); took < time.Second || took > 5*time.Second {
		t.Errorf("ADD gave up after %v, want about 2s", took)
	}
}
