package plugin_test

import (
	"testing"

	"github.com/latch-cni/latch/shared/identity"
)

// A runtime that asks again has a reason: no answer came. The pod may have got other labels meanwhile, or a record
// where there was none.
func TestAddAgain(t *testing.T) {
	for _, c := range []struct {
		name  string
		first func(n *node, s *sandbox)
	}{
		{"under another identifier", func(n *node, s *sandbox) {
			labels := map[string]string{"app": "old"}
			id := identity.Of("shop", labels)
			n.prepare(id, labels)
			n.record(s, id, labels)
		}},
		{"bound to a default", func(*node, *sandbox) {}},
	} {
		t.Run(c.name, func(t *testing.T) {
			n := newNode(t)
			s := n.sandbox("web")
			conf := n.netConf("1.0.0", s, map[string]any{"enforcingMode": "strict", "policyWait": "10ms"})
			c.first(n, s)
			n.mustCall("ADD", s, conf)
			id := n.publish(s)
			n.mustCall("ADD", s, conf)
			n.mustCall("CHECK", s, conf)
			if a, err := n.store().ReadAttachment(s.container, "eth0"); err != nil || a.Identifier != id {
				t.Errorf("attachment %+v, %v, want identifier %s", a, err, id)
			}
			n.mustCall("DEL", s, conf)
			n.wantNoAttachments()
		})
	}
}
