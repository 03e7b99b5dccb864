package reconcile

import (
	"errors"
	"testing"

	"github.com/latch-cni/latch/shared/attach"
	"github.com/latch-cni/latch/shared/enforce"
	"github.com/latch-cni/latch/shared/identity"
	"github.com/latch-cni/latch/shared/state"
)

// An attachment that is bound to a default slot, because nothing is known about its pod, is looked after
// by the audit like any other.
func TestAuditMendsDefaultBound(t *testing.T) {
	g := newGround(t)
	byName := identity.OfName("shop", "p")
	if err := g.node.Do(func() error {
		held := g.bind(enforce.Request{Identifier: byName, Default: "deny", Bind: []state.Attachment{g.att}}, byName)
		return held.Release()
	}); err != nil {
		t.Fatal(err)
	}
	in := g.att.Interfaces[0]
	if err := g.node.Do(func() error {
		err := attach.Detach(in.Ifindex, attach.ToPod, "")
		if g.enforcer.Check(ctx, g.att.ContainerID, g.att.IfName) == nil {
			return errors.New("a program that was taken off is not missed")
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	g.verifyAll(map[identity.Identifier]bool{byName: true})
	g.run(byName)
	if err := g.node.Do(func() error { return g.enforcer.Check(ctx, g.att.ContainerID, g.att.IfName) }); err != nil {
		t.Errorf("after the audit: %v", err)
	}
}
