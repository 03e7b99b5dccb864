package testenv

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"time"

	"github.com/cilium/ebpf/rlimit"
	"github.com/gofrs/flock"
)

// Time for the kernel to free what was let go: it does so behind grace periods.
const settle = 10 * time.Second

// Main runs the tests of a package that uses the kernel, and exits: func TestMain(m *testing.M) {
// testenv.Main(m) }. As root, suites run one after the other on a machine, and one that leaves
// something behind fails and names it. Temporary folders of all tests, and of the processes they
// start, lie below one that is the suite's own.
func Main(m Suite) { os.Exit(run(m)) }

// Suite is a *testing.M.
type Suite interface{ Run() int }

func run(m Suite) int {
	if os.Geteuid() != 0 {
		return m.Run()
	}
	if err := rlimit.RemoveMemlock(); err != nil { // kernels before 5.11 charge bpf objects to it
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	unlock, err := lockSuite()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer unlock()
	dir, err := os.MkdirTemp("", "latch-test-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.Remove(dir)
	if err := os.Setenv("TMPDIR", dir); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	before, err := takeInventory(dir)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	if code := m.Run(); code != 0 {
		return code // a failed test explains more than what it left behind
	}
	return report(dir, before)
}

// report waits until the tests have left nothing behind, and fails if they do not.
func report(dir string, before inventory) int {
	var leaks, others []string
	var err error
	for deadline := time.Now().Add(settle); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		runtime.GC() // closes what nobody can close any more
		leaks, others, err = leaksSince(dir, before)
		if err == nil && len(leaks)+len(others) == 0 {
			return 0
		}
	}
	if len(others) > 0 {
		fmt.Fprintln(os.Stderr, "programs that came while the tests ran, theirs or another process's:", strings.Join(others, ", "))
		if os.Getenv("CI") == "true" {
			leaks = append(leaks, others...)
		}
	}
	if err == nil && len(leaks) == 0 {
		return 0
	}
	fmt.Fprintln(os.Stderr, "FAIL: the tests left something behind")
	for _, l := range leaks {
		fmt.Fprintln(os.Stderr, "    ", l)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "    ", err)
	}
	return 1
}

// LockEnv names another lock than the machine's, for checkouts whose suites may run side by side. They
// take each other's time, and programs that come meanwhile are not known to be theirs.
const LockEnv = "LATCH_TEST_LOCK"

// lockSuite lets one suite run at a time. The file is never removed: the lock is on its inode.
func lockSuite() (func(), error) {
	path := os.Getenv(LockEnv)
	if path == "" {
		path = "/tmp/latch-kernel-tests.lock" // not TMPDIR: one for the machine
	}
	l := flock.New(path)
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Minute)
	defer cancel()
	ok, err := l.TryLockContext(ctx, 100*time.Millisecond)
	if err != nil || !ok {
		return nil, fmt.Errorf("wait for other suites: %w", errors.Join(err, context.Cause(ctx)))
	}
	return func() { _ = l.Unlock() }, nil
}
