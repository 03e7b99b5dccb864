package plugin

import (
	"context"
	"errors"
	"fmt"

	"github.com/containernetworking/cni/pkg/types"

	"github.com/latch-cni/latch/shared/enforce"
	"github.com/latch-cni/latch/shared/state"
)

// gc removes every attachment of the network that the runtime does not list as valid. It goes on after
// an error, so that one attachment cannot keep the others.
func gc(ctx context.Context, c *call) error {
	if c.confErr != nil {
		return c.confErr
	}
	if c.conf.Valid == nil {
		return types.NewError(types.ErrInvalidNetworkConfig, "no cni.dev/valid-attachments: what is stale is not known", "")
	}
	attachments, err := state.New(c.conf.StateDir).ListAttachments()
	if err != nil {
		c.log.Warn("list attachments", "err", err)
	}
	stale := staleAttachments(attachments, c.conf.Network, *c.conf.Valid)
	if len(stale) == 0 {
		return err
	}
	e, openErr := enforce.Open(ctx, c.enforcer())
	if openErr != nil {
		return errors.Join(err, openErr)
	}
	defer func() { _ = e.Close() }()
	for _, id := range stale {
		if removeErr := e.Remove(ctx, id.ContainerID, id.IfName); removeErr != nil {
			err = errors.Join(err, fmt.Errorf("remove attachment %s/%s: %w", id.ContainerID, id.IfName, removeErr))
		}
	}
	return err
}

// staleAttachments leaves alone what other networks have attached: the list is of one network.
func staleAttachments(all []state.Attachment, network string, valid []attachmentID) []attachmentID {
	keep := make(map[attachmentID]bool, len(valid))
	for _, id := range valid {
		keep[id] = true
	}
	var stale []attachmentID
	for _, a := range all {
		id := attachmentID{ContainerID: a.ContainerID, IfName: a.IfName}
		if a.Network == network && !keep[id] {
			stale = append(stale, id)
		}
	}
	return stale
}
