package crash

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/latch-cni/latch/integration/harness"
	"github.com/latch-cni/latch/integration/soak/stage"
	"github.com/latch-cni/latch/shared/state"
)

// Stopped is what a play of stopped writers has seen.
type Stopped struct {
	Tries   int           // until the holder of a lock was stopped
	Message string        // what the one behind it said
	Waited  time.Duration // until it said so
	Held    time.Duration // how long it was stopped
	Removed bool          // its lock file was removed before it woke
}

const lockTimeout = 500 * time.Millisecond

// Stop stops the plugin while it holds the lock of an identifier, for so long at least, and longer than others
// wait for it. They have to say so. Then the policy changes, and the writer wakes: it must not bring back what
// was before. With remove, the lock file is removed by hand while the writer is stopped, so that others go on.
func Stop(ctx context.Context, o stage.Options, rnd *rand.Rand, remove bool, hold time.Duration) (st Stopped, err error) {
	o.Latchd = append(o.Latchd, "--audit-period", "1s", "--lock-timeout", lockTimeout.String())
	policy := stage.Policy{App: app, Peers: 20}
	s, steady, watch, err := begin(ctx, o, policy)
	if err != nil {
		return st, err
	}
	defer func() { err = errors.Join(err, s.Close(ctx)) }()
	defer watch.Stop()
	st.Removed = remove
	other, err := s.NewPod("other", labels)
	if err != nil {
		return st, err
	}
	if err := errors.Join(other.Publish(), published(ctx, s, other)); err != nil {
		return st, err
	}
	stopped, cmd, err := stopHolder(s, rnd, &st)
	if err != nil {
		return st, err
	}
	defer func() { _ = cmd.Process.Kill() }()
	began := time.Now()
	for ; policy.Version < 1 || time.Since(began) < hold; policy.Version++ {
		if err := errors.Join(st.behind(s, other), s.Write(policy)); err != nil {
			return st, err
		}
	}
	if err := s.Write(policy); err != nil {
		return st, err
	}
	if remove {
		if err := removeLocks(s); err != nil {
			return st, err
		}
		if _, err := add(other); err != nil {
			return st, fmt.Errorf("with the lock file removed: %w", err)
		}
		if err := errors.Join(steady.Follows(policy.Version, 10*time.Second), other.Follows(policy.Version, patience)); err != nil {
			return st, fmt.Errorf("with the lock file removed: %w", err)
		}
	}
	st.Held = time.Since(began)
	if err := cmd.Process.Signal(unix.SIGCONT); err != nil {
		return st, err
	}
	wokeErr := cmd.Wait()
	err = stopped.Closed()
	if wokeErr == nil {
		err = errors.Join(err, stopped.Follows(policy.Version, patience))
	}
	if !remove {
		_, addErr := add(other)
		err = errors.Join(err, addErr)
	}
	_, addErr := add(stopped)
	err = errors.Join(err, addErr, s.Whole(ctx, 3, 10*time.Second), watch.Stop().Err())
	for _, p := range []*stage.Pod{steady, other, stopped} {
		err = errors.Join(err, p.Follows(policy.Version, patience), p.Obeys(patience), p.Remove())
	}
	return st, errors.Join(err, s.Delete(policy))
}

// published waits until latchd has published the pod's record.
func published(ctx context.Context, s *stage.Stage, p *stage.Pod) error {
	return harness.Eventually(ctx, patience, func() error {
		_, err := state.New(s.Node.StateDir).ReadPod(p.Namespace, p.Name)
		return err
	})
}

// stopHolder stops a plugin in ADD at a random moment, again and again until it holds a lock by then.
func stopHolder(s *stage.Stage, rnd *rand.Rand, st *Stopped) (*stage.Pod, *exec.Cmd, error) {
	p, err := s.NewPod("stopped", labels)
	if err != nil {
		return nil, nil, err
	}
	if err := errors.Join(p.Publish(), published(context.Background(), s, p)); err != nil {
		return nil, nil, err
	}
	for st.Tries < 500 {
		st.Tries++
		cmd, _ := p.Command("ADD")
		if err := s.OnNode(cmd.Start); err != nil {
			return nil, nil, err
		}
		time.Sleep(time.Duration(rnd.Int64N(int64(longest))))
		if err := cmd.Process.Signal(unix.SIGSTOP); err == nil && holdsLock(s, cmd.Process.Pid) {
			return p, cmd, nil
		}
		_ = cmd.Process.Signal(unix.SIGCONT)
		_ = cmd.Wait()
		if _, err := p.Del(); err != nil {
			return nil, nil, err
		}
	}
	return nil, nil, fmt.Errorf("the plugin never held a lock when it was stopped")
}

// holdsLock tells whether a process has written its name into the file of an identifier's lock.
func holdsLock(s *stage.Stage, pid int) bool {
	files, _ := filepath.Glob(filepath.Join(state.New(s.Node.StateDir).LockDir(), "*.lock")) // the pattern is good
	for _, f := range files {
		raw, err := os.ReadFile(f)
		if err == nil && filepath.Base(f) != "node.lock" && strings.HasPrefix(string(raw), fmt.Sprintf("pid=%d ", pid)) {
			return true
		}
	}
	return false
}

// removeLocks removes the folder of locks, though latchd may be making files in it.
func removeLocks(s *stage.Stage) (err error) {
	for range 100 {
		if err = os.RemoveAll(state.New(s.Node.StateDir).LockDir()); !errors.Is(err, unix.ENOTEMPTY) {
			break
		}
	}
	return err
}

// behind adds a pod whose identifier is locked: it must be told to try again, and by whom it is held up.
func (st *Stopped) behind(s *stage.Stage, p *stage.Pod) error {
	p.Entry = map[string]any{"lockTimeout": lockTimeout.String()}
	began := time.Now()
	_, err := p.Add()
	st.Waited = time.Since(began)
	if err == nil {
		return errors.New("ADD got in while the lock was held by a stopped process")
	}
	st.Message = err.Error()
	if !stage.Retryable(err) || !strings.Contains(st.Message, "pid=") {
		return fmt.Errorf("ADD behind a stopped process: want a retryable error that names it, got %w", err)
	}
	if st.Waited > lockTimeout+2*time.Second {
		return fmt.Errorf("ADD behind a stopped process took %v with a lock timeout of %v", st.Waited, lockTimeout)
	}
	return p.Closed()
}
