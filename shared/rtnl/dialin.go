package rtnl

import (
	"errors"
	"fmt"
	"runtime"

	"golang.org/x/sys/unix"
)

// DialIn opens a conversation in the network namespace that the descriptor stands for. The thread is there
// only while the socket is made, which is why this needs no thread of its own, as ns.Do does. A thread that
// cannot come back stays locked to the goroutine, which ends with the error.
func DialIn(netns int) (*Conn, error) {
	runtime.LockOSThread()
	own, err := unix.Open("/proc/thread-self/ns/net", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		runtime.UnlockOSThread()
		return nil, fmt.Errorf("open the own network namespace: %w", err)
	}
	defer func() { _ = unix.Close(own) }()
	if err := unix.Setns(netns, unix.CLONE_NEWNET); err != nil {
		runtime.UnlockOSThread()
		return nil, fmt.Errorf("enter network namespace: %w", err)
	}
	c, err := Dial()
	if back := unix.Setns(own, unix.CLONE_NEWNET); back != nil {
		return nil, errors.Join(err, fmt.Errorf("leave network namespace: %w", back))
	}
	runtime.UnlockOSThread()
	return c, err
}
