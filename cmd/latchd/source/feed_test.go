package source

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/latch-cni/latch/cmd/latchd/apis"
)

// TestPodsWaitForTheirNamespace holds back pods whose namespace has not been seen, and no others.
func TestPodsWaitForTheirNamespace(t *testing.T) {
	r := newRecorder()
	f := newFeed(r, newScope())
	up := func(o ...apis.Object) { f.change(o, nil) }
	down := func(o ...apis.Object) { f.change(nil, o) }
	want := func(names ...string) {
		t.Helper()
		if diff := cmp.Diff(names, r.names()); diff != "" {
			t.Error(diff)
		}
	}
	up(podOf("t1", "a", "1", nil), podOf("t1", "b", "1", nil), podOf("t2", "c", "1", nil))
	want()
	if got := f.waitingFor(); !slices.Equal(got, []string{"t1", "t2"}) {
		t.Errorf("waiting for %q", got)
	}
	down(podOf("t1", "b", "1", nil))
	up(podOf("t1", "a", "2", nil)) // the newer one counts
	up(namespaceOf("t1"))
	want("Namespace t1", "Pod t1/a")
	r.look(func() {
		if p := r.objects[apis.Ref{Kind: apis.KindPod, Namespace: "t1", Name: "a"}]; p.GetUID() != "2" {
			t.Errorf("pod with uid %q", p.GetUID())
		}
	})
	// A pod that was passed on stays known, also when its namespace goes before it.
	down(namespaceOf("t1"))
	up(podOf("t1", "a", "2", map[string]string{"x": "y"}), podOf("t1", "late", "3", nil))
	want("Pod t1/a")
	up(namespaceOf("t1"), namespaceOf("t2"))
	want("Namespace t1", "Namespace t2", "Pod t1/a", "Pod t1/late", "Pod t2/c")
	if got := f.waitingFor(); len(got) > 0 {
		t.Errorf("waiting for %q", got)
	}
}
