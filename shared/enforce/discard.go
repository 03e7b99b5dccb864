package enforce

import (
	"context"
	"errors"
	"io/fs"

	"github.com/latch-cni/latch/shared/lock"
	"github.com/latch-cni/latch/shared/pins"
	"github.com/latch-cni/latch/shared/state"
)

// Discard is Remove on a node where the programs and maps that cfg needs are not pinned, or not all of
// them: what was in the kernel for the attachment cannot be reached any more, and to load it all again only
// to remove from it would be the wrong way round. It deletes the records, and reports false without doing
// anything when everything is pinned. It mounts and pins nothing. Unknown attachments are no error.
func Discard(ctx context.Context, cfg Config, containerID, ifname string) (bool, error) {
	if _, err := inodes(pins.New(cfg.Bpffs), cfg.BindOnly); !errors.Is(err, fs.ErrNotExist) {
		return false, err
	}
	store := state.New(cfg.StateDir)
	found, err := store.FindAttachments(containerID, ifname)
	if ifname != "" && errors.Is(err, state.ErrCorrupt) { // as Remove does it
		return true, store.DeleteAttachment(containerID, ifname)
	}
	if err != nil {
		return true, err
	}
	var errs []error
	for _, a := range found {
		errs = append(errs, discard(ctx, cfg, store, a))
	}
	return true, errors.Join(errs...)
}

func discard(ctx context.Context, cfg Config, store state.Store, a state.Attachment) error {
	held, err := lock.New(store.LockDir()).Acquire(ctx, cfg.LockTimeout, a.Identifier)
	if err != nil {
		return err
	}
	err = store.RemoveMember(a.Identifier, a.ContainerID, a.IfName)
	if err == nil {
		err = store.DeleteAttachment(a.ContainerID, a.IfName)
	}
	return errors.Join(err, held.Release())
}
