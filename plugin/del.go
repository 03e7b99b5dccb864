package plugin

import (
	"context"
	"errors"
	"io/fs"

	"github.com/latch-cni/latch/shared/enforce"
	"github.com/latch-cni/latch/shared/state"
)

// del removes the attachment. Whatever was done for it has a record, so no record means that there is
// nothing to do: neither netns nor prevResult, pins or latchd are needed. Safe to call again.
func del(ctx context.Context, c *call) error {
	if c.confErr != nil {
		c.log.Warn("delete with defaults", "err", c.confErr)
	}
	store := state.New(c.conf.StateDir)
	if _, err := store.ReadAttachment(c.ContainerID, c.IfName); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if done, err := enforce.Discard(ctx, c.enforcer(), c.ContainerID, c.IfName); done || err != nil {
		return err
	}
	e, err := enforce.Open(ctx, c.enforcer())
	if err != nil {
		return err
	}
	defer func() { _ = e.Close() }()
	return e.Remove(ctx, c.ContainerID, c.IfName)
}
