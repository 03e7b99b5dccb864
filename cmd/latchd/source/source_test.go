package source

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/latch-cni/latch/cmd/latchd/apis"
	"github.com/latch-cni/latch/cmd/latchd/apis/v1alpha1"
)

var allCustom = []string{"policyendpoints", "clusterpolicyendpoints", "applicationnetworkpolicies", "clusternetworkpolicies"}

// TestDeliversThenSyncs delivers what is there, says which kinds are complete, and goes on with changes.
func TestDeliversThenSyncs(t *testing.T) {
	s, r := newServer(t, allCustom...), newRecorder()
	s.put(namespaceOf("t1"))
	s.put(podOf("t1", "a", "u1", map[string]string{"app": "a"}))
	s.put(networkPolicyOf("t1", "np"))
	s.put(endpointOf("t1", "np-x"))
	src := start(t, s, r, here...)
	eventually(t, "synced", r.isSynced)
	want := []string{"Namespace t1", "NetworkPolicy t1/np", "Pod t1/a", "PolicyEndpoint t1/np-x"}
	if diff := cmp.Diff(want, r.names()); diff != "" {
		t.Error(diff)
	}
	kinds := []string{apis.KindApplicationNetworkPolicy, apis.KindClusterNetworkPolicy, apis.KindNetworkPolicy}
	r.look(func() {
		if diff := cmp.Diff(kinds, r.complete); diff != "" {
			t.Errorf("complete kinds: %s", diff)
		}
	})
	if st := src.Status(); !st.Synced || !st.Away.IsZero() || len(st.Missing)+len(st.Absent)+len(st.Errors) > 0 {
		t.Errorf("status %+v", st)
	}

	s.put(podOf("t1", "b", "u2", nil))
	s.remove(networkPolicyOf("t1", "np"))
	eventually(t, "a pod more and a policy less", func() bool {
		return slices.Equal(r.names(), []string{"Namespace t1", "Pod t1/a", "Pod t1/b", "PolicyEndpoint t1/np-x"})
	})
}

// TestAbsentKindsAreWaitedFor syncs without kinds that the server does not have, and adds them later.
func TestAbsentKindsAreWaitedFor(t *testing.T) {
	s, r := newServer(t), newRecorder()
	src := start(t, s, r, here...)
	eventually(t, "synced", r.isSynced)
	r.look(func() {
		if diff := cmp.Diff([]string{apis.KindNetworkPolicy}, r.complete); diff != "" {
			t.Errorf("complete kinds: %s", diff)
		}
	})
	if st := src.Status(); len(st.Absent) != 4 {
		t.Errorf("absent kinds %q, want 4", st.Absent)
	}
	s.serve(allCustom...)
	s.put(&v1alpha1.ClusterNetworkPolicy{ObjectMeta: meta("", "c")})
	eventually(t, "all kinds complete", func() bool {
		n := 0
		r.look(func() { n = len(r.complete) })
		return n == 3
	})
	if diff := cmp.Diff([]string{"ClusterNetworkPolicy c"}, r.names()); diff != "" {
		t.Error(diff)
	}
}

// TestKindsThatAppearAtOnceAreWaitedFor does not believe a server that is only starting.
func TestKindsThatAppearAtOnceAreWaitedFor(t *testing.T) {
	s, r := newServer(t), newRecorder()
	s.put(&v1alpha1.ClusterNetworkPolicy{ObjectMeta: meta("", "c")})
	start(t, s, r, here...)
	time.Sleep(300 * time.Millisecond)
	if r.isSynced() {
		t.Error("synced on the first answer that kinds are absent")
	}
	s.serve(allCustom...)
	eventually(t, "synced", r.isSynced)
	if diff := cmp.Diff([]string{"ClusterNetworkPolicy c"}, r.names()); diff != "" {
		t.Error(diff)
	}
	r.look(func() {
		if len(r.complete) != 3 || r.synced != 1 {
			t.Errorf("synced %d times with %q, want once with all kinds", r.synced, r.complete)
		}
	})
}

// TestKindsOfAnotherVersionAreNotAbsent waits for kinds that there are, in a version that nobody here can read: to take
// them for absent would be to take their policies out of force.
func TestKindsOfAnotherVersionAreNotAbsent(t *testing.T) {
	s, r := newServer(t, "policyendpoints", "clusterpolicyendpoints"), newRecorder()
	s.later = []string{"policyendpoints", "clusternetworkpolicies"}
	src := start(t, s, r, here...)
	eventually(t, "the error", func() bool {
		return slices.ContainsFunc(src.Status().Errors, func(e string) bool {
			return strings.Contains(e, "clusternetworkpolicies") && strings.Contains(e, "v1beta1")
		})
	})
	time.Sleep(src.progress.confirm + 2*confirmPause)
	if r.isSynced() {
		t.Error("synced without a kind that the server has")
	}
	s.serve(allCustom...)
	eventually(t, "synced", r.isSynced)
	eventually(t, "no error", func() bool { return len(src.Status().Errors) == 0 })
}

// TestHangingListHoldsSyncBack waits for a kind that is there, whatever the others do.
func TestHangingListHoldsSyncBack(t *testing.T) {
	s, r := newServer(t, allCustom...), newRecorder()
	release := make(chan struct{})
	s.hang["clusterpolicyendpoints"] = release
	s.put(namespaceOf("t1"))
	s.put(podOf("t1", "a", "u1", nil))
	src := start(t, s, r, here...)
	eventually(t, "the others delivered", func() bool {
		return slices.Equal(src.Status().Missing, []string{"clusterpolicyendpoints"})
	})
	time.Sleep(50 * time.Millisecond)
	if r.isSynced() {
		t.Error("synced without the list of a kind")
	}
	close(release)
	eventually(t, "synced", r.isSynced)
}

// TestRelistFindsWhatWent deletes what vanished while no watch was open, and only that.
func TestRelistFindsWhatWent(t *testing.T) {
	s, r := newServer(t, allCustom...), newRecorder()
	for _, name := range []string{"stays", "goes"} {
		s.put(networkPolicyOf("t1", name))
	}
	start(t, s, r, here...)
	eventually(t, "synced", r.isSynced)
	s.tell("DELETED", networkPolicyOf("t1", "goes"), false)
	s.tell("MODIFIED", networkPolicyOf("t1", "comes"), false)
	s.mu.Lock()
	for stream, of := range s.streams {
		if of == "networkpolicies" {
			stream <- []byte(`{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Expired","code":410}}`)
		}
	}
	s.mu.Unlock()
	eventually(t, "listed again", func() bool {
		return slices.Equal(r.names(), []string{"NetworkPolicy t1/comes", "NetworkPolicy t1/stays"})
	})
	r.look(func() {
		if diff := cmp.Diff([]string{"NetworkPolicy t1/goes"}, r.deleted); diff != "" {
			t.Errorf("deleted: %s", diff)
		}
		if r.upserts != 3 {
			t.Errorf("%d objects delivered, want 3: unchanged ones need not come again", r.upserts)
		}
	})
}

// TestOutageKeepsEverything says since when the server is away and takes nothing out meanwhile.
func TestOutageKeepsEverything(t *testing.T) {
	s, r := newServer(t, allCustom...), newRecorder()
	s.put(networkPolicyOf("t1", "np"))
	src := start(t, s, r, here...)
	eventually(t, "synced", r.isSynced)
	before := time.Now()
	s.cut()
	s.http.Close()
	eventually(t, "away", func() bool { return !src.Status().Away.IsZero() })
	if st := src.Status(); st.Away.Before(before) || !st.Synced {
		t.Errorf("status %+v, want away since after %v", st, before)
	}
	if diff := cmp.Diff([]string{"NetworkPolicy t1/np"}, r.names()); diff != "" {
		t.Error(diff)
	}
}

// TestNodeAddresses reads them from the Node object, uses them before it trims by them, tries again,
// and lists again when they change.
func TestNodeAddresses(t *testing.T) {
	s, r := newServer(t, allCustom...), newRecorder()
	s.put(endpointOf("t1", "np", v1alpha1.PodEndpoint{HostIP: "10.0.0.11", PodIP: "10.1.0.1", Namespace: "t1", Name: "a"},
		v1alpha1.PodEndpoint{HostIP: "10.0.0.10", PodIP: "10.1.0.2", Namespace: "t1", Name: "b"}))
	r.refuse = errors.New("locked")
	src := start(t, s, r)
	eventually(t, "waiting for addresses", func() bool { return slices.Contains(src.Status().Missing, "addresses of the node") })
	s.put(nodeOf("10.0.0.10"))
	eventually(t, "addresses refused", func() bool { return len(src.Status().Errors) > 0 })
	if r.isSynced() || len(r.names()) > 0 {
		t.Error("went on without addresses")
	}
	r.look(func() { r.refuse = nil })
	eventually(t, "synced", r.isSynced)
	listed := func() (names []string) {
		r.look(func() {
			o := r.objects[apis.Ref{Kind: apis.KindPolicyEndpoint, Namespace: "t1", Name: "np"}].(*v1alpha1.PolicyEndpoint)
			for _, e := range o.Spec.PodSelectorEndpoints {
				names = append(names, e.Name)
			}
		})
		return names
	}
	if diff := cmp.Diff([]string{"b"}, listed()); diff != "" {
		t.Error(diff)
	}
	s.put(nodeOf("10.0.0.11"))
	eventually(t, "cut by the new address", func() bool { return slices.Equal(listed(), []string{"a"}) })
	r.look(func() {
		if len(r.deleted) > 0 {
			t.Errorf("deleted %q", r.deleted)
		}
	})
	s.put(nodeOf()) // says nothing: what is known stays
	s.put(namespaceOf("t9"))
	eventually(t, "a later change", func() bool { return slices.Contains(r.names(), "Namespace t9") })
	r.look(func() {
		if len(r.addrs) != 1 || r.addrs[0].String() != "10.0.0.11" {
			t.Errorf("addresses %v", r.addrs)
		}
	})
}

func TestNoServer(t *testing.T) {
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	if _, err := New(Options{Node: "n1"}, newRecorder()); !errors.Is(err, ErrNoServer) {
		t.Errorf("got %v, want ErrNoServer", err)
	}
}
