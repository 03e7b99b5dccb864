package plugin

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/features"
	"github.com/containernetworking/cni/pkg/types"

	"github.com/latch-cni/latch/shared/pins"
	"github.com/latch-cni/latch/shared/state"
)

// status tells whether an ADD could succeed now: bpffs is there, the kernel has what the programs
// need, and policy has been read. Runtimes ask every few seconds, so it loads nothing.
func status(_ context.Context, c *call) error {
	if c.confErr != nil {
		return c.confErr
	}
	if err := c.conf.refused(types.ErrPluginNotAvailable); err != nil {
		return err
	}
	if err := pins.EnsureBPFFS(c.conf.Bpffs); err != nil {
		return notAvailable(err)
	}
	if err := probeKernel(); err != nil {
		return notAvailable(err)
	}
	if err := known(c.conf.StateDir); err != nil {
		return notAvailable(err)
	}
	return nil
}

// known tells whether latchd has read policy since the node started. That it runs is not asked: without
// it pods that are known start as ever, and others are told to try again later. A runtime that is told
// more takes the whole node for not ready, and its running pods are taken out of their Services, every
// time that latchd is replaced by a newer one; or that Latch is installed where pods run already, for as
// long as latchd takes to start. On a node that boots nothing is lost by the truth.
func known(stateDir string) error {
	s, err := report(stateDir)
	if err == nil && !s.Known && time.Since(s.Arrived) > arrival {
		err = fmt.Errorf("latchd has not read policy yet: %s", s.Message)
	}
	return err
}

// watcher tells whether latchd publishes policy, by its own report.
func watcher(stateDir string) error {
	s, err := report(stateDir)
	switch {
	case err != nil:
		return err
	case !s.Ready && !s.Degraded: // a runtime takes the whole node for not ready
		return fmt.Errorf("latchd is not ready: %s", s.Message)
	case time.Since(s.UpdatedAt).Abs() > silence:
		return fmt.Errorf("latchd has not reported since %s", s.UpdatedAt.Format(time.RFC3339))
	}
	return nil
}

// report reads what latchd said last.
func report(stateDir string) (state.Status, error) {
	s, err := state.New(stateDir).ReadStatus()
	if errors.Is(err, fs.ErrNotExist) {
		err = fmt.Errorf("latchd has not reported yet in %s", stateDir)
	}
	return s, err
}

// arrival is how long latchd may take to know policy after Latch was installed on a node with running pods.
// Then the installation has failed, and pods should be scheduled elsewhere.
const arrival = 5 * time.Minute

// silence is how long latchd, which reports every second, may be silent before it counts as dead.
const silence = 10 * time.Second

// probeKernel asks for the newest features of the kernels that are supported.
func probeKernel() error {
	if err := features.HaveProgramType(ebpf.SchedCLS); err != nil {
		return fmt.Errorf("probe sched_cls programs: %w", err)
	}
	if err := features.HaveMapType(ebpf.RingBuf); err != nil {
		return fmt.Errorf("probe ring buffer maps (Linux 5.8): %w", err)
	}
	return nil
}

// notAvailable makes the code that keeps runtimes from starting pods.
func notAvailable(err error) error {
	return types.NewError(types.ErrPluginNotAvailable, "latch cannot enforce policy: "+oneLine(err), "")
}
