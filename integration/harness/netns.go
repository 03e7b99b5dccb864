package harness

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"

	"golang.org/x/sys/unix"
)

// NetNS is a network namespace, kept by a bind mount at Path, with an operating system thread that
// never leaves it. Processes started inside Do live in the namespace, and one started with a parent
// death signal lives until Close.
type NetNS struct {
	Path string

	calls chan call
	gone  chan struct{}
	own   bool // the mount is ours
}

type call struct {
	do   func() error
	done chan<- error
}

// NewNetNS makes a namespace with loopback down, mounted at dir/name.
func NewNetNS(dir, name string) (*NetNS, error) {
	path := filepath.Join(dir, name)
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, fmt.Errorf("create netns %s: %w", name, err)
	}
	_ = f.Close()
	n, err := run(&NetNS{Path: path, own: true})
	if err != nil {
		_ = os.Remove(path)
		return nil, fmt.Errorf("create netns %s: %w", name, err)
	}
	return n, nil
}

// OpenNetNS enters a namespace that somebody else made. Close leaves it as it is.
func OpenNetNS(path string) (*NetNS, error) {
	n, err := run(&NetNS{Path: path})
	if err != nil {
		return nil, fmt.Errorf("open netns: %w", err)
	}
	return n, nil
}

func run(n *NetNS) (*NetNS, error) {
	n.calls, n.gone = make(chan call), make(chan struct{})
	ready := make(chan error)
	go n.serve(ready)
	return n, <-ready
}

// serve owns the thread. It never unlocks it, so the thread ends with the goroutine.
func (n *NetNS) serve(ready chan<- error) {
	runtime.LockOSThread()
	if unix.Gettid() == unix.Getpid() {
		// The main thread cannot end while the process lives and would hold the namespace.
		// While it is locked here, another goroutine gets another thread.
		moved := make(chan struct{})
		go func() {
			defer close(moved)
			n.serve(ready)
		}()
		<-moved
		runtime.UnlockOSThread()
		return
	}
	defer close(n.gone)
	if err := n.enter(); err != nil {
		ready <- err
		return
	}
	ready <- nil
	for c := range n.calls {
		c.done <- c.do()
	}
}

func (n *NetNS) enter() error {
	if !n.own {
		fd, err := unix.Open(n.Path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			return fmt.Errorf("open %s: %w", n.Path, err)
		}
		defer func() { _ = unix.Close(fd) }()
		if err := unix.Setns(fd, unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("enter %s: %w", n.Path, err)
		}
		return nil
	}
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("unshare: %w", err)
	}
	own := fmt.Sprintf("/proc/%d/task/%d/ns/net", os.Getpid(), unix.Gettid())
	if err := unix.Mount(own, n.Path, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("mount %s: %w", n.Path, err)
	}
	return nil
}

// Do runs f on the thread inside the namespace and returns its error. Calls queue. What f starts in
// goroutines of its own runs outside the namespace.
func (n *NetNS) Do(f func() error) error {
	done := make(chan error, 1)
	select {
	case n.calls <- call{f, done}:
		return <-done
	case <-n.gone:
		return fmt.Errorf("enter netns %s: it was closed", n.Path)
	}
}

// Close ends the thread and removes the mount. The namespace and its interfaces are gone when the
// last process and socket in it are.
func (n *NetNS) Close() error {
	close(n.calls)
	<-n.gone
	if !n.own {
		return nil
	}
	err := errors.Join(unix.Unmount(n.Path, unix.MNT_DETACH), os.Remove(n.Path))
	if err != nil {
		return fmt.Errorf("remove netns: %w", err)
	}
	return nil
}
