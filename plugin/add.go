package plugin

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/containernetworking/cni/pkg/types"

	"github.com/latch-cni/latch/shared/enforce"
	"github.com/latch-cni/latch/shared/state"
)

// add brings every interface of the attachment under the pod's policy, or fails and leaves nothing.
func add(ctx context.Context, c *call) error {
	if c.confErr != nil {
		return c.confErr
	}
	if err := c.conf.refused(types.ErrTryAgainLater); err != nil {
		return err
	}
	c.warnOfUnknownKeys()
	prev, err := c.conf.result()
	if err != nil {
		return err
	}
	pod, err := parsePodArgs(c.Args)
	if err != nil {
		return err
	}
	interfaces, err := findInterfaces(prev, c.Netns)
	if err != nil {
		return err
	}
	e, err := enforce.Open(ctx, c.enforcer())
	if err != nil {
		return fmt.Errorf("prepare enforcement: %w", err)
	}
	defer func() { _ = e.Close() }()

	b := &binding{enforcer: e, conf: c.conf, log: c.log, pod: pod, attachment: c.attachment(pod, interfaces)}
	if err := b.enforce(ctx); err != nil {
		return b.takeBack(ctx, fmt.Errorf("enforce policy of pod %s: %w", pod, err))
	}
	return c.conf.printPrevResult()
}

func (c *call) attachment(pod pod, interfaces []state.Interface) state.Attachment {
	for i := range interfaces {
		interfaces[i].AntiSpoof = c.conf.AntiSpoof
	}
	return state.Attachment{
		Network:      c.conf.Network,
		ContainerID:  c.ContainerID,
		IfName:       c.IfName,
		Netns:        c.Netns,
		PodNamespace: pod.Namespace,
		PodName:      pod.Name,
		PodUID:       pod.UID,
		Interfaces:   interfaces,
		CreatedAt:    time.Now(),
	}
}

// printPrevResult prints the result byte for byte as it came, unknown fields included, unless it does
// not say its version: then the library adds that.
func (c *Config) printPrevResult() error {
	if c.prevVersion != c.CNIVersion {
		return types.PrintResult(c.PrevResult, c.CNIVersion)
	}
	if _, err := os.Stdout.Write(append(c.rawPrevResult, '\n')); err != nil {
		return fmt.Errorf("print result: %w", err)
	}
	return nil
}
