package regress

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/containernetworking/cni/pkg/types"
	"golang.org/x/sys/unix"

	"github.com/latch-cni/latch/shared/lock"
	"github.com/latch-cni/latch/shared/testenv"
)

// A kernel that lacks what latch needs: ADD is refused with a CNI error that says so, nothing half-done is
// left, and the pod's next ADD works. The other refusals are tests of package plugin.
func TestRefusesKernelWithoutBPF(t *testing.T) {
	for _, c := range []struct {
		name  string
		errno unix.Errno
		fresh bool // nothing is pinned
	}{
		{"no system call, fresh node", unix.ENOSYS, true},
		{"no system call", unix.ENOSYS, false},
		{"not permitted", unix.EPERM, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			g := newGround(t, options{idle: c.fresh})
			g.apply(r13Policy)
			b := g.pod("B", testenv.PodB)
			b.publish(nil)
			if !c.fresh {
				g.start("A", testenv.PodA) // by then B's policy is prepared, too
			}
			err := g.addWithout(b, c.errno)
			refusal := (*types.Error)(nil)
			if !errors.As(err, &refusal) {
				t.Fatalf("ADD: %v, want a CNI error", err)
			}
			if !strings.Contains(refusal.Msg, c.errno.Error()) {
				t.Errorf("%q does not say %q", refusal.Msg, c.errno)
			}
			t.Log(refusal)
			if left, err := g.store().ListAttachments(); err != nil || len(left) != map[bool]int{true: 0, false: 1}[c.fresh] {
				t.Errorf("attachments %+v (%v) after the refusal", left, err)
			}
			if c.fresh {
				if _, err := os.Stat(filepath.Join(g.node.Bpffs, "latch")); !errors.Is(err, os.ErrNotExist) {
					t.Errorf("pins after the refusal: %v", err)
				}
				g.startLatchd()
				g.start("A", testenv.PodA)
			}
			b.add()
			g.start("C", testenv.PodC)
			g.expect("the next ADD", "A > B tcp/8080 : allow\nC > B tcp/8080 : deny")
			g.healthy()
		})
	}
}

// addWithout runs ADD with the bpf system call failing.
func (g *ground) addWithout(p *pod, errno unix.Errno) error {
	g.t.Helper()
	self, err := os.Executable()
	if err != nil {
		g.t.Fatal(err)
	}
	link := filepath.Join(g.t.TempDir(), withoutBPF)
	if err := os.Symlink(self, link); err != nil {
		g.t.Fatal(err)
	}
	cmd := exec.Command(link, strconv.Itoa(int(errno)), g.bin.Latch())
	cmd.Stdin = bytes.NewReader(mustJSON(p.conf(nil)))
	cmd.Env = append(os.Environ(), "CNI_COMMAND=ADD")
	for key, value := range p.env() {
		cmd.Env = append(cmd.Env, key+"="+value)
	}
	_, err = g.run(cmd)
	return err
}

// Somebody keeps the lock of the identifier: ADD is refused with the code for "try again" and the lock's
// name in the message, and is not refused any more when the lock is free.
func TestRefusesWhileLockIsHeld(t *testing.T) {
	g := newGround(t, options{})
	g.apply(r13Policy)
	g.start("A", testenv.PodA)
	b := g.pod("B", testenv.PodB)
	b.publish(nil)
	g.eventually(inForce, func() error {
		_, err := g.store().ReadPod(b.Spec.Namespace, b.Spec.Name) // by then its identifier is prepared
		return err
	})
	held, err := lock.New(g.store().LockDir()).Acquire(context.Background(), 10*time.Second, b.identifier())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = held.Release() }()
	begin := time.Now()
	err = b.tryAdd(map[string]any{"lockTimeout": "300ms"})
	refusal := (*types.Error)(nil)
	if !errors.As(err, &refusal) || refusal.Code != types.ErrTryAgainLater || !strings.Contains(refusal.Msg, string(b.identifier())) {
		t.Errorf("ADD: %v, want code %d and %s in the message", err, types.ErrTryAgainLater, b.identifier())
	}
	if waited := time.Since(begin); waited < 300*time.Millisecond || waited > 5*time.Second {
		t.Errorf("waited %v, want the 300 ms of lockTimeout", waited)
	}
	if _, err := g.store().ReadAttachment(b.container, b.IfName); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("record of the refused attachment: %v", err)
	}
	if err := held.Release(); err != nil {
		t.Fatal(err)
	}
	b.add()
	g.start("C", testenv.PodC)
	g.expect("the next ADD", fmt.Sprintf("A > B tcp/%d : allow\nC > B tcp/%d : deny", 8080, 8080))
}

// A second latchd with records of its own, but the same kernel objects, is refused before it touches them.
func TestRefusesSecondLatchd(t *testing.T) {
	g := newGround(t, options{latchd: []string{"--audit-period", "1s"}})
	g.apply(r13Policy)
	g.start("A", testenv.PodA)
	g.start("B", testenv.PodB)
	g.start("C", testenv.PodC)
	const rows = "A > B tcp/8080 : allow\nC > B tcp/8080 : deny"
	g.expect("one latchd", rows)
	for range 3 {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		second := exec.CommandContext(ctx, g.bin.Latchd(), "--policy-dir", t.TempDir(), "--node-name", "other", "--bpffs", g.node.Bpffs,
			"--state-dir", testenv.StateDir(t), "--health-addr=", "--metrics-addr=")
		var out []byte
		err := g.Node.Do(func() (err error) {
			out, err = second.CombinedOutput()
			return err
		})
		cancel()
		if err == nil || ctx.Err() == context.DeadlineExceeded || !bytes.Contains(out, []byte("another latchd works on "+g.node.Bpffs)) {
			t.Errorf("second latchd: %v\n%s", err, out)
		}
	}
	time.Sleep(2 * time.Second) // an audit
	g.expect("after the second one", rows)
	g.healthy()
}
