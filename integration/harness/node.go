package harness

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/latch-cni/latch/shared/state"
)

// Config describes a node.
type Config struct {
	Name     string       // of the node, default "node"
	NetNS    string       // path of a namespace that is there and stays; empty: make one
	Addrs    []netip.Addr // the node's own; the first of each family is the pods' gateway
	Binaries *Binaries

	Kubeconfig    string         // of latchd: policy and addresses of the node from an API server
	EnforcingMode string         // of latchd, default standard
	LatchdArgs    []string       // more arguments of latchd
	LatchEntry    map[string]any // more keys of latch's entry in the conflist
	Between       []any          // plugin entries between ptp and latch
	HostLocal     netip.Prefix   // first IPv4 address and subnet that host-local gives; zero: pods have their own
	WithoutLatch  bool           // chains end before latch and latchd is never started
	Keep          bool           // leave the directory with logs and state behind
}

// Node is a node of its own: namespace, bpffs, state and policy directory. Methods are for one
// goroutine, but for those that add and remove pods.
type Node struct {
	NS        *NetNS
	Dir       string
	Bpffs     string
	StateDir  string
	PolicyDir string
	LatchLog  string // of the plugin
	Latchd    *Process

	cfg     Config
	started time.Time // of latchd

	mu        sync.Mutex          // guards what follows
	sandboxes map[string]*Sandbox // by container id
	created   int
}

// NewNode makes a node. latchd is not started yet. The caller must Stop it, also after a test failed.
func NewNode(cfg Config) (*Node, error) {
	if cfg.Name == "" {
		cfg.Name = "node"
	}
	if cfg.EnforcingMode == "" {
		cfg.EnforcingMode = "standard"
	}
	dir, err := os.MkdirTemp("", "latch-"+cfg.Name+"-")
	if err != nil {
		return nil, fmt.Errorf("make node: %w", err)
	}
	n := &Node{Dir: dir, cfg: cfg, sandboxes: map[string]*Sandbox{},
		Bpffs: filepath.Join(dir, "bpf"), StateDir: filepath.Join(dir, "state"),
		PolicyDir: filepath.Join(dir, "policy"), LatchLog: filepath.Join(dir, "latch.log")}
	if err := n.setUp(); err != nil {
		return nil, errors.Join(fmt.Errorf("make node %s: %w", cfg.Name, err), n.Stop(context.Background()))
	}
	return n, nil
}

func (n *Node) setUp() error {
	for _, d := range []string{n.Bpffs, n.StateDir, n.PolicyDir, n.netnsDir(), n.spoolDir(), n.cacheDir()} {
		if err := os.Mkdir(d, 0o700); err != nil {
			return err
		}
	}
	if err := unix.Mount("bpffs", n.Bpffs, "bpf", 0, "mode=0700"); err != nil {
		return fmt.Errorf("mount bpffs on %s: %w", n.Bpffs, err)
	}
	var err error
	if n.cfg.NetNS != "" {
		n.NS, err = OpenNetNS(n.cfg.NetNS)
		return err
	}
	if n.NS, err = NewNetNS(n.netnsDir(), n.cfg.Name); err != nil {
		return err
	}
	return n.NS.Do(func() error {
		if err := errors.Join(sysctl(quietIPv6), sysctl(forwarding)); err != nil {
			return err
		}
		return setUpLoopback(n.cfg.Addrs...)
	})
}

func (n *Node) netnsDir() string { return filepath.Join(n.Dir, "netns") }
func (n *Node) cacheDir() string { return filepath.Join(n.Dir, "cni-cache") }
func (n *Node) spoolDir() string { return filepath.Join(n.Dir, "spool") } // beside the policy directory, for renames

// Name is the name that Pod manifests have as nodeName.
func (n *Node) Name() string { return n.cfg.Name }

// Use has the node use other binaries from now on; what runs goes on.
func (n *Node) Use(b *Binaries) { n.cfg.Binaries = b }

// StartLatchd starts the watcher on its source of policy. Its log outlives restarts.
func (n *Node) StartLatchd() error {
	args := []string{"--node-name", n.cfg.Name, "--bpffs", n.Bpffs, "--state-dir", n.StateDir, "--enforcing-mode", n.cfg.EnforcingMode}
	if n.cfg.Kubeconfig != "" {
		args = append(args, "--kubeconfig", n.cfg.Kubeconfig)
	} else {
		args = append(args, "--policy-dir", n.PolicyDir)
		for _, a := range n.cfg.Addrs {
			args = append(args, "--node-ip", a.String())
		}
	}
	n.started = time.Now()
	return n.NS.Do(func() (err error) {
		n.Latchd, err = Start(filepath.Join(n.Dir, "latchd.log"), n.cfg.Binaries.Latchd(), append(args, n.cfg.LatchdArgs...)...)
		return err
	})
}

// WaitReady waits until the running latchd says that it is ready.
func (n *Node) WaitReady(ctx context.Context, patience time.Duration) error {
	return Eventually(ctx, patience, func() error {
		if err := n.Latchd.Running(); err != nil {
			return err
		}
		st, err := state.New(n.StateDir).ReadStatus()
		if err != nil {
			return err
		}
		if !st.Ready || st.UpdatedAt.Before(n.started) {
			return fmt.Errorf("latchd is not ready: %s\n%s", st.Message, n.Latchd.LogTail(5))
		}
		return nil
	})
}

// StopLatchd stops the watcher the polite way.
func (n *Node) StopLatchd() error {
	p := n.Latchd
	n.Latchd = nil
	if p == nil {
		return nil
	}
	return p.Stop(30 * time.Second) // a loaded machine takes its time
}

// KillLatchd ends the watcher with SIGKILL.
func (n *Node) KillLatchd() error {
	p := n.Latchd
	n.Latchd = nil
	if p == nil {
		return nil
	}
	return p.Kill()
}
