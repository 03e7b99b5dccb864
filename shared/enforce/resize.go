package enforce

import (
	"context"
	"errors"
	"fmt"

	"github.com/latch-cni/latch/bpf"
)

// Resize gives the flow tables the sizes of the configuration, if the pinned ones have others. A table does
// not grow, and all others are made anew with it: only on a node where nothing is bound, as after a boot when
// the plugin came before latchd and made them by defaults. Else it says so in the log, and they stay as they
// are. It is to be called before anything else is done with the objects.
func (e *Enforcer) Resize(ctx context.Context) error {
	e.mu.RLock()
	o := e.objects
	e.mu.RUnlock()
	if e.sized(o) {
		return nil
	}
	held, err := e.locks.AcquireNode(ctx, e.cfg.LockTimeout)
	if err != nil {
		return err
	}
	if err := errors.Join(e.resizeLocked(ctx), held.Release()); err != nil {
		return fmt.Errorf("resize flow tables: %w", err)
	}
	return nil
}

// sized tells whether the flow tables have the sizes of the configuration.
func (e *Enforcer) sized(o *objects) bool {
	have := bpf.SizesOf(o.maps)
	return have.Flows4 == e.cfg.Sizes.Flows4 && have.Flows6 == e.cfg.Sizes.Flows6
}

func (e *Enforcer) resizeLocked(ctx context.Context) error {
	o, err := openObjects(e.pins, e.cfg.BindOnly)
	if err != nil {
		return err
	}
	have, want, sized := bpf.SizesOf(o.maps), e.cfg.Sizes, e.sized(o)
	bindings, err := o.bindings()
	if err = errors.Join(err, o.close()); err != nil || sized {
		return err
	}
	atts, err := e.store.ListAttachments()
	if err != nil || len(atts) > 0 || len(bindings) > 0 {
		e.log.Warn("flow tables keep the size that they were made with: drain and reboot the node to have them made anew",
			"ipv4", have.Flows4, "ipv6", have.Flows6, "wantedIPv4", want.Flows4, "wantedIPv6", want.Flows6, "pods", max(len(atts), len(bindings)))
		return nil
	}
	loaded, err := bpf.Load(want)
	if err != nil {
		return err
	}
	defer loaded.Close()
	// A plugin that has the old ones open looks at the pins again once it has its lock.
	if err := pinAll(e.pins, loaded.Maps, loaded.Programs(), false); err != nil {
		return err
	}
	e.log.Info("flow tables were made anew", "ipv4", want.Flows4, "ipv6", want.Flows6)
	return e.reopen(ctx)
}
