package rules

import (
	"time"

	"golang.org/x/sys/unix"
)

// membarrierGlobal is MEMBARRIER_CMD_GLOBAL of linux/membarrier.h: the call returns after an RCU
// grace period, that is after every BPF program that was running when it began.
const membarrierGlobal = 1

// Quiesce waits until no program can still be reading what was freed before the call: programs run
// inside an RCU read-side section. Where the kernel refuses the barrier (it does with nohz_full)
// it waits for longer than any program can run.
func Quiesce() {
	if _, _, errno := unix.Syscall(unix.SYS_MEMBARRIER, membarrierGlobal, 0, 0); errno != 0 {
		time.Sleep(time.Second)
	}
}
