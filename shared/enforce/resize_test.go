package enforce

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"github.com/latch-cni/latch/bpf"
	"github.com/latch-cni/latch/shared/state"
)

// A node where nothing is bound gets tables of another size. Who had the old ones open, as a plugin that
// waits for its pod's record, goes on with the new ones.
func TestResize(t *testing.T) {
	g := newGround(t)
	plugin := g.binder()
	g.resize(2048)
	g.wantFlowTables(2048, 1024)
	g.apply(Request{Identifier: idA, Create: allowPorts(openPort)})
	writer := g.e
	g.e = plugin
	g.apply(Request{Identifier: idA, Bind: []state.Attachment{attachment(g.iface)}})
	g.wantVerdicts("bound by who had the old tables open", true, false)
	g.e = writer
	if r := g.apply(Request{Identifier: idA, Create: allowPorts(openPort), Verify: true}); len(r.Repaired) > 0 {
		t.Errorf("repaired %v", r.Repaired)
	}
	var key bpf.FlowKey4
	if err := g.e.objects.maps["flows4"].NextKey(nil, &key); err != nil {
		t.Errorf("no flow in the pinned table: %v", err)
	}
}

// Where a pod is bound, tables keep their size and their flows, and the log says so: bound by its record, or,
// where that is lost, in the kernel alone.
func TestResizeKeepsWhatIsInUse(t *testing.T) {
	for _, recorded := range []bool{true, false} {
		g := newGround(t)
		g.apply(Request{Identifier: idA, Create: allowPorts(openPort), Bind: []state.Attachment{attachment(g.iface)}})
		g.wantVerdicts("before", true, false)
		if !recorded {
			if err := g.e.store.DeleteAttachment("c1", "eth0"); err != nil {
				t.Fatal(err)
			}
		}
		var said bytes.Buffer
		g.cfg.Log = slog.New(slog.NewTextHandler(&said, nil))
		g.resize(2048)
		g.wantFlowTables(1024, 1024)
		g.wantVerdicts("after", true, false)
		if !strings.Contains(said.String(), "drain and reboot") {
			t.Errorf("the log says %q", said.String())
		}
	}
}

// resize restarts the writer with another size of the flow tables.
func (g *ground) resize(flows uint32) {
	g.t.Helper()
	_ = g.e.Close()
	g.cfg.Sizes = bpf.FlowTables(flows)
	g.open()
	g.do(func() error { return g.e.Resize(ctx) })
}

func (g *ground) wantFlowTables(v4, v6 uint32) {
	g.t.Helper()
	if have := bpf.SizesOf(g.e.objects.maps); have.Flows4 != v4 || have.Flows6 != v6 {
		g.t.Errorf("flow tables for %d and %d flows, want %d and %d", have.Flows4, have.Flows6, v4, v6)
	}
}
