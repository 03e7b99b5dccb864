package plugin_test

import (
	"fmt"
	"sync"
	"testing"

	"github.com/latch-cni/latch/shared/identity"
)

// Pods of one workload start and stop together: all of them want the lock of one identifier.
func TestManyAtOnce(t *testing.T) {
	const pods = 24
	n := newNode(t)
	labels := map[string]string{"app": "web"}
	id := identity.Of("shop", labels)
	n.prepare(id, labels)
	var all []*sandbox
	for i := range pods {
		s := n.sandbox(fmt.Sprintf("web-%d", i))
		n.record(s, id, labels)
		all = append(all, s)
	}
	each := func(verb string) {
		t.Helper()
		var wg sync.WaitGroup
		for _, s := range all {
			wg.Go(func() {
				conf := n.netConf("1.0.0", s, map[string]any{"policyWait": "10s"})
				if _, cniErr, err := n.exec(verb, n.env(s, nil), conf); err != nil || cniErr != nil {
					t.Errorf("%s of %s: %v %v", verb, s.name, cniErr, err)
				}
			})
		}
		wg.Wait()
	}
	each("ADD")
	each("CHECK")
	if left, err := n.store().ListAttachments(); err != nil || len(left) != pods {
		t.Errorf("%d attachments (%v), want %d", len(left), err, pods)
	}
	each("DEL")
	n.wantNoAttachments()
}
