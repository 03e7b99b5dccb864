package install

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// oldAgent is another policy agent, as it is when it has been switched off: programs attached and
// pinned in its way, and no process.
type oldAgent struct {
	g               *ground
	ingress, egress *ebpf.Program // named in the pod's view
}

// The agent's verdicts: what it allows ends the chain.
const (
	accept = 0
	shot   = 2
)

// newOldAgent loads programs that forbid a UDP port to pods, their own and others', and pins them as those of
// one workload.
func newOldAgent(g *ground, forbidden int64) *oldAgent {
	g.t.Helper()
	a := &oldAgent{g: g, ingress: agentProgram(g.t, "handle_ingress", forbidden), egress: agentProgram(g.t, "handle_egress", forbidden)}
	g.t.Cleanup(func() { _ = os.RemoveAll(filepath.Join(g.node.Bpffs, "globals")) })
	programs, maps := filepath.Join(g.node.Bpffs, "globals", "aws", "programs"), filepath.Join(g.node.Bpffs, "globals", "aws", "maps")
	g.check(errors.Join(os.MkdirAll(programs, 0o700), os.MkdirAll(maps, 0o700)))
	g.check(a.ingress.Pin(filepath.Join(programs, "a-7c9d@t1_handle_ingress")))
	g.check(a.egress.Pin(filepath.Join(programs, "a-7c9d@t1_handle_egress")))
	m, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Hash, KeySize: 4, ValueSize: 1, MaxEntries: 2})
	g.check(err)
	g.check(errors.Join(m.Pin(filepath.Join(maps, "a-7c9d@t1_egress_pod_state_map")), m.Close()))
	return a
}

func agentProgram(t *testing.T, name string, forbidden int64) *ebpf.Program {
	t.Helper()
	const destinationPort = 14 + 20 + 2
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{Name: name, Type: ebpf.SchedCLS, License: "GPL", Instructions: asm.Instructions{
		asm.Mov.Reg(asm.R6, asm.R1),
		asm.LoadAbs(destinationPort, asm.Half), // a shorter packet ends here, accepted
		asm.Mov.Reg(asm.R1, asm.R0),
		asm.Mov.Imm(asm.R0, accept),
		asm.JNE.Imm(asm.R1, int32(forbidden), "end"),
		asm.Mov.Imm(asm.R0, shot),
		asm.Return().WithSymbol("end"),
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Close() })
	return p
}

// attach is what the agent did for a pod: clsact, priority 1, handle 1. The hooks of the device are the
// other way round than the pod's view.
func (a *oldAgent) attach(device string) {
	a.g.t.Helper()
	a.g.check(a.g.Node.Do(func() error {
		link, err := netlink.LinkByName(device)
		if err != nil {
			return err
		}
		index := link.Attrs().Index
		err = netlink.QdiscAdd(&netlink.GenericQdisc{QdiscType: "clsact", QdiscAttrs: netlink.QdiscAttrs{
			LinkIndex: index, Handle: netlink.MakeHandle(0xffff, 0), Parent: netlink.HANDLE_CLSACT}})
		if err != nil {
			return err
		}
		return errors.Join(a.filter(index, netlink.HANDLE_MIN_INGRESS, a.egress, "handle_egress"),
			a.filter(index, netlink.HANDLE_MIN_EGRESS, a.ingress, "handle_ingress"))
	}))
}

func (a *oldAgent) filter(index int, parent uint32, p *ebpf.Program, name string) error {
	return netlink.FilterReplace(&netlink.BpfFilter{Fd: p.FD(), Name: name, DirectAction: true, FilterAttrs: netlink.FilterAttrs{
		LinkIndex: index, Parent: parent, Handle: 1, Priority: 1, Protocol: unix.ETH_P_ALL}})
}

// filters counts what the agent has on a device.
func (a *oldAgent) filters(device string) int {
	a.g.t.Helper()
	n := 0
	a.g.check(a.g.Node.Do(func() error {
		link, err := netlink.LinkByName(device)
		if err != nil {
			return err
		}
		for _, parent := range []uint32{netlink.HANDLE_MIN_INGRESS, netlink.HANDLE_MIN_EGRESS} {
			list, err := netlink.FilterList(link, parent)
			if err != nil {
				return err
			}
			for _, f := range list {
				if f.Attrs().Handle == 1 && f.Attrs().Priority == 1 {
					n++
				}
			}
		}
		return nil
	}))
	return n
}

// unpinned returns an error while the agent's tree is there.
func (a *oldAgent) unpinned() error {
	path := filepath.Join(a.g.node.Bpffs, "globals")
	if _, err := os.Stat(path); err != nil {
		return nil
	}
	return fmt.Errorf("%s is still there", path)
}
