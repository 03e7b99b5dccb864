package main

import (
	"context"
	"runtime/debug"
	"runtime/metrics"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

const (
	memoryPeriod = 2 * time.Second
	memoryWorth  = 16 << 20 // so much is worth a collection
)

// giveMemoryBack returns to the kernel what a large change needed, when nothing is left to be done: Go by
// itself keeps it for minutes.
func (d *daemon) giveMemoryBack(ctx context.Context) {
	_ = wait.PollUntilContextCancel(ctx, memoryPeriod, false, func(context.Context) (done bool, _ error) {
		if d.reconciler.Progress().Queue == 0 && dispensable() > memoryWorth {
			debug.FreeOSMemory()
		}
		return false, nil
	})
}

// dispensable tells how much memory is held that nothing alive is in, as far as the last collection knows.
func dispensable() uint64 {
	s := []metrics.Sample{
		{Name: "/memory/classes/heap/objects:bytes"}, {Name: "/memory/classes/heap/free:bytes"}, {Name: "/gc/heap/live:bytes"},
	}
	metrics.Read(s)
	objects, free, live := s[0].Value.Uint64(), s[1].Value.Uint64(), s[2].Value.Uint64()
	return max(objects+free, live) - live
}
