package enforce

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"sync/atomic"

	"github.com/cilium/ebpf"

	"github.com/latch-cni/latch/bpf"
)

// NodeConfig is what the programs know about the node.
type NodeConfig struct {
	Addrs         []netip.Addr // the node's own addresses, both families
	KeepAddrs     bool         // Addrs are not known yet: leave those that are in force
	AddressIsNode bool         // any packet from a node address is the node's, also a forwarded one
	JudgeToNode   bool         // pods reach the node's addresses only where policy allows it
	EventsDeny    bool         // an event for each denied packet
	EventsAllow   bool         // an event for each admitted flow
	Timeouts      bpf.Timeouts
}

// SetNode writes the node's configuration. Addresses are added before old ones go. It may be called
// again at any time. Objects that take the place of those that are open are told, too.
func (e *Enforcer) SetNode(ctx context.Context, c NodeConfig) error {
	o, err := e.current(ctx) // may need the node lock itself
	if err != nil {
		return err
	}
	held, err := e.locks.AcquireNode(ctx, e.cfg.LockTimeout)
	if err != nil {
		return err
	}
	defer held.Release()
	e.mu.Lock()
	e.node = &c
	e.mu.Unlock()
	return o.setNode(c)
}

// setNode writes under the node lock. What passes for the node's and may not be so any more is judged
// again, so are flows of pods between slots that an older build gave the same generation.
func (o *objects) setNode(c NodeConfig) error {
	var fewer bool
	if !c.KeepAddrs {
		var err error
		if fewer, err = o.setNodeAddrs(c.Addrs); err != nil {
			return fmt.Errorf("write node addresses: %w", err)
		}
	}
	o.setTimeouts(c.Timeouts)
	flags := c.flags()
	const whoIsNode = bpf.NodeAddressIsNode | bpf.NodeJudgeToNode
	if was := atomic.SwapUint32(&o.node.At(0).Flags, flags); fewer || (was^flags)&whoIsNode != 0 {
		o.renewAll()
	}
	o.tellApart()
	return nil
}

func (c NodeConfig) flags() (flags uint32) {
	for flag, on := range map[uint32]bool{
		bpf.NodeAddressIsNode: c.AddressIsNode,
		bpf.NodeJudgeToNode:   c.JudgeToNode,
		bpf.NodeEventsDeny:    c.EventsDeny,
		bpf.NodeEventsAllow:   c.EventsAllow,
	} {
		if on {
			flags |= flag
		}
	}
	return flags
}

// mendNode writes what SetNode was told last again, if the kernel has something else, and says so.
func (e *Enforcer) mendNode(ctx context.Context, o *objects) (mended []string, err error) {
	held, err := e.locks.AcquireNode(ctx, e.cfg.LockTimeout)
	if err != nil {
		return nil, err
	}
	defer held.Release()
	e.mu.RLock()
	c := e.node
	e.mu.RUnlock()
	if c == nil {
		return nil, nil
	}
	n := o.node.At(0)
	if flags := atomic.LoadUint32(&n.Flags); flags != c.flags() {
		mended = append(mended, fmt.Sprintf("node settings: switches were changed by another: %#x, not %#x", flags, c.flags()))
	}
	for i, stamp := range c.Timeouts.Stamps() {
		if now := atomic.LoadUint32(&n.Timeouts[i]); now != stamp {
			mended = append(mended, fmt.Sprintf("node settings: timeout %d was changed by another: %d, not %d", i, now, stamp))
		}
	}
	if !c.KeepAddrs {
		missing, strange, err := o.compareNodeAddrs(c.Addrs)
		if err != nil {
			return nil, fmt.Errorf("read node addresses: %w", err)
		}
		if len(missing)+len(strange) > 0 {
			mended = append(mended, fmt.Sprintf("node settings: addresses were changed by another: %d were missing, %d not its own", len(missing), len(strange)))
		}
	}
	if len(mended) == 0 {
		return nil, nil
	}
	return mended, o.setNode(*c)
}

func (o *objects) setTimeouts(t bpf.Timeouts) {
	n := o.node.At(0)
	for i, stamp := range t.Stamps() {
		atomic.StoreUint32(&n.Timeouts[i], stamp)
	}
}

// setNodeAddrs reports whether an address is the node's no longer.
func (o *objects) setNodeAddrs(addrs []netip.Addr) (fewer bool, err error) {
	m := o.maps["node_addrs"]
	missing, gone, err := o.compareNodeAddrs(addrs)
	errs := []error{err}
	for _, key := range missing {
		if err := m.Put(key, uint8(1)); err != nil {
			return false, err
		}
	}
	for _, key := range gone {
		if err := m.Delete(key); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			errs = append(errs, err)
		}
	}
	return len(gone) > 0, errors.Join(errs...)
}

// compareNodeAddrs tells which addresses the kernel lacks, and which it has that are not the node's.
func (o *objects) compareNodeAddrs(addrs []netip.Addr) (missing, strange []bpf.NodeAddr, err error) {
	want := map[bpf.NodeAddr]bool{}
	for _, a := range addrs {
		want[bpf.NewNodeAddr(a)] = true
	}
	var key bpf.NodeAddr
	var value uint8
	it := o.maps["node_addrs"].Iterate()
	for it.Next(&key, &value) {
		if !want[key] {
			strange = append(strange, key)
		}
		delete(want, key)
	}
	return slices.Collect(maps.Keys(want)), strange, it.Err()
}
