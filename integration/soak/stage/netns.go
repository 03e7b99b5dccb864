package stage

import (
	"fmt"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// within runs f on a thread of its own inside a network namespace. The thread ends with it. Sockets and
// processes that f makes stay in the namespace.
func within(path string, f func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		done <- enter(path, f)
	}()
	return <-done
}

func enter(path string, f func() error) error {
	if unix.Gettid() == unix.Getpid() {
		// The main thread cannot end. Locked here, it leaves the work to another one.
		return within(path, f)
	}
	ns, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("enter netns: %w", err)
	}
	defer ns.Close()
	if err := unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("enter netns %s: %w", path, err)
	}
	return f()
}

// makeNetNS makes a network namespace with loopback up, kept by a mount at path.
func makeNetNS(path string) error {
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		return fmt.Errorf("make netns: %w", err)
	}
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		done <- unshare(path)
	}()
	if err := <-done; err != nil {
		_ = os.Remove(path)
		return fmt.Errorf("make netns: %w", err)
	}
	return nil
}

func unshare(path string) error {
	if unix.Gettid() == unix.Getpid() {
		done := make(chan error, 1)
		go func() {
			runtime.LockOSThread()
			done <- unshare(path)
		}()
		err := <-done
		runtime.UnlockOSThread()
		return err
	}
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		return err
	}
	for _, s := range []string{"all", "default"} { // no address detection, no solicitations: they prove nothing here
		for _, key := range []string{"accept_dad", "dad_transmits", "router_solicitations"} {
			if err := os.WriteFile("/proc/sys/net/ipv6/conf/"+s+"/"+key, []byte("0"), 0o644); err != nil {
				return err
			}
		}
	}
	return unix.Mount(fmt.Sprintf("/proc/%d/task/%d/ns/net", os.Getpid(), unix.Gettid()), path, "", unix.MS_BIND, "")
}

func removeNetNS(path string) error {
	if err := unix.Unmount(path, unix.MNT_DETACH); err != nil {
		return fmt.Errorf("remove netns %s: %w", path, err)
	}
	return os.Remove(path)
}
