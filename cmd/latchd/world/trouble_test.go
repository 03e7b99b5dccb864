package world

import (
	"fmt"
	"testing"

	networkingv1 "k8s.io/api/networking/v1"

	"github.com/google/go-cmp/cmp"
)

// Only policies that select a pod of the node are of interest, by what is wrong with them.
func TestTroubles(t *testing.T) {
	s := newStage(t)
	s.Synced()
	uid := func(o *networkingv1.NetworkPolicy) { o.UID = "uid-of-p" }
	s.Upsert(makePod("own", "app=own"), makeNP("p", "app=own", "I", uid), makeNP("pending", "app=own", "I"), makeNP("fine", "app=own", "I"), makeNP("elsewhere", "app=z", "I"),
		makePE("p-1", "I", ofPolicy("NetworkPolicy", "p"), in("10.0.0.0/99 TCP/80", "10.9.0.1")),
		makePE("fine-1", "I", ofPolicy("NetworkPolicy", "fine"), in("10.9.0.1")),
		makePE("elsewhere-1", "I", ofPolicy("NetworkPolicy", "elsewhere"), in("10.0.0.0/99 TCP/80")))
	var got []string
	for _, trouble := range s.Troubles() {
		got = append(got, fmt.Sprintf("%s %q waits %t, %d problems", trouble.Policy.Name, trouble.UID, trouble.Waits != "", len(trouble.Problems)))
	}
	want := []string{`p "uid-of-p" waits false, 1 problems`, `pending "" waits true, 0 problems`}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	s.Delete(makePod("own", "app=own"))
	if left := s.Troubles(); len(left) > 0 {
		t.Errorf("troubles of pods that are gone: %+v", left)
	}
}
