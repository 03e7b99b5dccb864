package harness

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Stop removes the pods by DEL, stops latchd, has latchctl clean the node up and takes the node
// down. Every step is tried, whatever failed before. What is still there when nothing should be is
// an error that names it. Safe to call again.
func (n *Node) Stop(ctx context.Context) error {
	var errs []error
	n.mu.Lock()
	left := slices.Collect(maps.Values(n.sandboxes))
	n.mu.Unlock()
	for _, s := range left {
		errs = append(errs, n.DelPod(ctx, s))
	}
	errs = append(errs, n.StopLatchd())
	if n.NS != nil {
		errs = append(errs, n.cleanUp(ctx), n.leftovers(), n.NS.Close())
		n.NS = nil
	}
	if err := unix.Unmount(n.Bpffs, unix.MNT_DETACH); err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) {
		errs = append(errs, fmt.Errorf("unmount %s: %w", n.Bpffs, err))
	}
	if !n.cfg.Keep {
		errs = append(errs, os.RemoveAll(n.Dir))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("stop node %s: %w", n.cfg.Name, err)
	}
	return nil
}

func (n *Node) cleanUp(ctx context.Context) error {
	if n.cfg.WithoutLatch {
		return nil
	}
	_, err := n.Latchctl(ctx, "cleanup", "--yes")
	return err
}

// leftovers looks for what DEL and cleanup must have removed: pins, attachments, interfaces.
func (n *Node) leftovers() error {
	var errs []error
	for _, dir := range []string{n.Bpffs, filepath.Join(n.StateDir, "attachments")} {
		entries, err := os.ReadDir(dir)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			errs = append(errs, fmt.Errorf("look for leftovers: %w", err))
		}
		for _, e := range entries {
			if strings.HasSuffix(e.Name(), ".debug") { // the kernel's own, in every bpffs
				continue
			}
			errs = append(errs, fmt.Errorf("left over: %s", filepath.Join(dir, e.Name())))
		}
	}
	if n.cfg.NetNS != "" {
		return errors.Join(errs...) // its interfaces are the business of who made it
	}
	err := n.NS.Do(func() error {
		links, err := netlink.LinkList()
		if err != nil {
			return fmt.Errorf("look for leftover interfaces: %w", err)
		}
		for _, l := range links {
			if l.Type() == "veth" || l.Type() == "dummy" || l.Type() == "bridge" {
				errs = append(errs, fmt.Errorf("left over: interface %s", l.Attrs().Name))
			}
		}
		return nil
	})
	return errors.Join(append(errs, err)...)
}
