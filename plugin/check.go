package plugin

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"github.com/containernetworking/cni/pkg/types"

	"github.com/latch-cni/latch/shared/enforce"
	"github.com/latch-cni/latch/shared/state"
)

// check asks the kernel whether the attachment is still under enforcement, and whether it still
// covers the interfaces that the sandbox has now.
func check(ctx context.Context, c *call) error {
	if c.confErr != nil {
		return c.confErr
	}
	prev, err := c.conf.result()
	if err != nil {
		return err
	}
	interfaces, err := findInterfaces(prev, c.Netns)
	if err != nil {
		return err
	}
	attachment, err := state.New(c.conf.StateDir).ReadAttachment(c.ContainerID, c.IfName)
	if errors.Is(err, fs.ErrNotExist) {
		return types.NewError(types.ErrUnknownContainer, "attachment "+c.ContainerID+"/"+c.IfName+" is not under enforcement", "")
	}
	if err != nil {
		return err
	}
	if err := covers(attachment, interfaces); err != nil {
		return err
	}
	e, err := enforce.Open(ctx, c.enforcer())
	if err != nil {
		return err
	}
	defer func() { _ = e.Close() }()
	return e.Check(ctx, c.ContainerID, c.IfName)
}

// covers tells whether each interface is one that ADD brought under enforcement.
func covers(attachment state.Attachment, interfaces []state.Interface) error {
	recorded := map[int]bool{}
	for _, i := range attachment.Interfaces {
		recorded[i.Ifindex] = true
	}
	var errs []error
	for _, i := range interfaces {
		if !recorded[i.Ifindex] {
			errs = append(errs, fmt.Errorf("interface %s (%d) is not under enforcement", i.Name, i.Ifindex))
		}
	}
	return errors.Join(errs...)
}
