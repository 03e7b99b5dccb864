package enforce

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
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
	Timeouts      Timeouts
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

// setNode writes under the node lock.
func (o *objects) setNode(c NodeConfig) error {
	if !c.KeepAddrs {
		if err := o.setNodeAddrs(c.Addrs); err != nil {
			return fmt.Errorf("write node addresses: %w", err)
		}
	}
	o.setTimeouts(c.Timeouts)
	var flags uint32
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
	atomic.StoreUint32(&o.node.At(0).Flags, flags)
	return nil
}

func (o *objects) setTimeouts(t Timeouts) {
	n := o.node.At(0)
	for i, stamp := range t.stamps() {
		atomic.StoreUint32(&n.Timeouts[i], stamp)
	}
}

func (o *objects) setNodeAddrs(addrs []netip.Addr) error {
	m := o.maps["node_addrs"]
	want := map[bpf.NodeAddr]bool{}
	for _, a := range addrs {
		key := bpf.NodeAddr{Addr: a.As16()}
		want[key] = true
		if err := m.Put(key, uint8(1)); err != nil {
			return err
		}
	}
	var gone []bpf.NodeAddr
	var key bpf.NodeAddr
	var value uint8
	it := m.Iterate()
	for it.Next(&key, &value) {
		if !want[key] {
			gone = append(gone, key)
		}
	}
	errs := []error{it.Err()}
	for _, key := range gone {
		if err := m.Delete(key); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}
