package testenv

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/containernetworking/plugins/pkg/netlinksafe"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// NetNS is a network namespace that lives as long as its test. Its loopback is up, and IPv6 addresses
// are usable at once (no duplicate address detection).
type NetNS struct {
	path string
	fd   netns.NsHandle
	// Netlink talks to the namespace from wherever it is called.
	Netlink netlinksafe.Handle
}

// New makes a network namespace.
func New(t testing.TB) *NetNS {
	t.Helper()
	RequireRoot(t)
	n := &NetNS{path: filepath.Join(t.TempDir(), "netns"), fd: netns.None()}
	if err := os.WriteFile(n.path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := n.close(); err != nil {
			t.Errorf("remove network namespace: %v", err)
		}
	})
	if err := n.open(); err != nil {
		t.Fatalf("make network namespace: %v", err)
	}
	n.Up(t, "lo")
	return n
}

// Path is a file that stands for the namespace, as in CNI_NETNS.
func (n *NetNS) Path() string { return n.path }

// FD is a descriptor of the namespace.
func (n *NetNS) FD() int { return int(n.fd) }

// Remove ends the namespace before the test does, with all interfaces in it, as the end of a sandbox
// does. The path is gone as well.
func (n *NetNS) Remove(t testing.TB) {
	t.Helper()
	if err := n.close(); err != nil {
		t.Fatalf("remove network namespace: %v", err)
	}
}

func (n *NetNS) open() error {
	err := onThread(func() error {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return err
		}
		for _, s := range []string{"all", "default"} {
			for key, value := range map[string]string{"accept_dad": "0", "dad_transmits": "0", "router_solicitations": "0"} {
				if err := os.WriteFile(filepath.Join("/proc/sys/net/ipv6/conf", s, key), []byte(value), 0o644); err != nil {
					return err
				}
			}
		}
		return unix.Mount(threadNetNS(), n.path, "", unix.MS_BIND, "")
	})
	if err != nil {
		return err
	}
	if n.fd, err = netns.GetFromPath(n.path); err != nil {
		return err
	}
	n.Netlink, err = netlinksafe.NewHandleAt(n.fd, unix.NETLINK_ROUTE)
	return err
}

func (n *NetNS) close() error {
	if n.path == "" {
		return nil
	}
	var errs []error
	n.Netlink.Close()
	if n.fd.IsOpen() {
		errs = append(errs, n.fd.Close())
	}
	// A child that is being forked holds a copy of every descriptor until it executes, of this namespace too.
	if err := unix.Unmount(n.path, unix.MNT_DETACH); err != nil && !errors.Is(err, unix.EINVAL) { // EINVAL: not mounted
		errs = append(errs, err)
	}
	errs = append(errs, os.Remove(n.path))
	n.path = ""
	return errors.Join(errs...)
}

// Do runs the function inside the namespace. The function must not start goroutines that need to be
// there, and must not call t.Fatal: it returns its error. Sockets that it opens stay in the namespace.
func (n *NetNS) Do(f func() error) error {
	return onThread(func() error {
		if err := netns.Set(n.fd); err != nil {
			return fmt.Errorf("enter network namespace: %w", err)
		}
		return f()
	})
}

// MustDo is Do, and ends the test on an error.
func (n *NetNS) MustDo(t testing.TB, f func() error) {
	t.Helper()
	if err := n.Do(f); err != nil {
		t.Fatal(err)
	}
}

// Sysctl sets a key such as net.ipv4.ip_forward inside the namespace.
func (n *NetNS) Sysctl(t testing.TB, key, value string) {
	t.Helper()
	path := "/proc/sys/" + strings.ReplaceAll(key, ".", "/")
	n.MustDo(t, func() error { return os.WriteFile(path, []byte(value), 0o644) })
}

// onThread runs f on a thread of its own and brings the thread back. If it cannot, the thread dies.
func onThread(f func() error) error {
	err := errors.New("the function did not return: t.Fatal inside of Do?")
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread()
		home, e := netns.GetFromPath(threadNetNS())
		if e != nil {
			err = e
			runtime.UnlockOSThread()
			return
		}
		defer home.Close()
		defer func() {
			if netns.Set(home) == nil {
				runtime.UnlockOSThread()
			}
		}()
		err = f()
	}()
	<-done
	return err
}

func threadNetNS() string { return fmt.Sprintf("/proc/self/task/%d/ns/net", unix.Gettid()) }
