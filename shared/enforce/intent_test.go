package enforce

import (
	"testing"

	"github.com/latch-cni/latch/shared/state"
)

// What a killed writer has only intended is recorded as enforced by a run that has asked the kernel about
// it, and by no other: one that writes rules alone has not looked at the interface.
func TestIntentIsEnforcedWhenItWasVerified(t *testing.T) {
	g := newGround(t)
	g.apply(Request{Identifier: idA, Create: allowPorts(openPort)})
	killed := attachment(g.iface)
	killed.Identifier, killed.Phase = idA, state.PhaseIntent
	killed.Interfaces[0].PodID = g.e.objects.nextPod()
	if err := g.e.Store().AddMember(idA, killed.ContainerID, killed.IfName); err != nil {
		t.Fatal(err)
	}
	if err := g.e.Store().WriteAttachment(killed); err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		name string
		req  Request
		want state.Phase
	}{
		{"rules", Request{Identifier: idA, Create: allowPorts(shutPort)}, state.PhaseIntent},
		{"verify", Request{Identifier: idA, Create: allowPorts(openPort), Verify: true}, state.PhaseEnforced},
		{"rules again", Request{Identifier: idA, Create: allowPorts(shutPort)}, state.PhaseEnforced},
	} {
		g.apply(step.req)
		a, err := g.e.Store().ReadAttachment(killed.ContainerID, killed.IfName)
		if err != nil {
			t.Fatal(err)
		}
		if a.Phase != step.want {
			t.Errorf("%s: recorded as %q, want %q", step.name, a.Phase, step.want)
		}
	}
	g.wantVerdicts("rules again", false, true)
}
