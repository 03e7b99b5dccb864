package install

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/containernetworking/cni/pkg/types"
	"github.com/google/go-cmp/cmp"

	"github.com/latch-cni/latch/shared/attach"
	"github.com/latch-cni/latch/shared/pins"
	"github.com/latch-cni/latch/shared/testenv"
)

// Where the programs cannot be attached ADD fails, with an error as the specification wants it (R14.8).
func TestAttachFails(t *testing.T) {
	g := newGround(t, options{latchd: []string{"--attach-mode", "clsact"}})
	g.writePrimary(g.primary(`{"type":"spoil"}`))
	g.install()
	g.start()
	s := newSandbox(t, "a")
	err := g.add(s)
	var cni *types.Error
	if !errors.As(err, &cni) || cni.Code == 0 || !strings.Contains(err.Error(), "ingress") {
		t.Errorf("want an error of the plugin that names the qdisc, have %v", err)
	}
	g.check(g.del(s))
}

// The result of ADD is what the plugins before made (R14.9).
func TestResultIsThatOfThePrimary(t *testing.T) {
	g := newGround(t, options{})
	file := filepath.Join(t.TempDir(), "prevResult")
	g.writePrimary(g.primary(fmt.Sprintf(`{"type":"record","file":%q}`, file)))
	g.install()
	g.start()
	s := g.pod("a")
	raw, err := os.ReadFile(file)
	g.check(err)
	var want, have map[string]any
	g.check(json.Unmarshal(raw, &want))
	result, err := json.Marshal(s.result)
	g.check(err)
	g.check(json.Unmarshal(result, &have))
	delete(want, "cniVersion") // libcni converts to the newest
	delete(have, "cniVersion")
	if diff := cmp.Diff(want, have); diff != "" {
		t.Error(diff)
	}
}

// DEL succeeds whatever is missing (R14.10).
func TestDelOfNothing(t *testing.T) {
	g := newGround(t, options{})
	g.writePrimary(g.primary())
	g.install()
	netns := "/run/netns/no-such-sandbox"
	for _, env := range []string{netns, ""} {
		cmd := exec.Command(filepath.Join(g.binDir, "latch"))
		cmd.Env = []string{"CNI_COMMAND=DEL", "CNI_CONTAINERID=unknown", "CNI_IFNAME=eth0", "CNI_PATH=" + g.binDir, "CNI_NETNS=" + env}
		cmd.Stdin = strings.NewReader(fmt.Sprintf(`{"cniVersion":"1.0.0","name":"pods","type":"latch","stateDir":%q,"bpffs":%q,"logFile":%q}`,
			g.node.StateDir, g.node.Bpffs, g.node.LatchLog))
		if out, err := cmd.CombinedOutput(); err != nil || len(out) > 0 {
			t.Errorf("netns %q: %v: %s", env, err, out)
		}
	}
	if left, err := os.ReadDir(g.node.StateDir); err != nil || len(left) > 0 {
		t.Errorf("it left %v, %v", left, err)
	}
}

// A pod with security groups has its host interface by another name: the programs are on that (R14.11).
func TestHostInterfaceOfAnotherName(t *testing.T) {
	g := newGround(t, options{})
	g.writePrimary(g.primary())
	g.install()
	g.start()
	p := g.Pod(t, testenv.PodSpec{Namespace: "t1", Name: "sg-pod", Addr4: "10.0.1.77", HostName: "vlan1a2b3c4d5e6"})
	s := sandboxIn(p.NetNS, "sg-pod")
	g.check(g.addBy(g.latchAlone(p.PrevResult()), s))
	for _, side := range attach.Sides {
		g.check(g.Node.Do(func() error {
			st, err := attach.Query(p.HostIfindex, side, g.program(side))
			if err != nil || !st.Effective {
				return fmt.Errorf("%s: %+v: %w", side, st, err)
			}
			return nil
		}))
	}
}

// program is the id of a pinned program of Latch.
func (g *ground) program(side attach.Side) uint32 {
	g.t.Helper()
	p, err := ebpf.LoadPinnedProgram(pins.New(g.node.Bpffs).Prog(side.String()), nil)
	g.check(err)
	defer p.Close()
	info, err := p.Info()
	g.check(err)
	id, _ := info.ID()
	return uint32(id)
}
