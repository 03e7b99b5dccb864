package regress

import (
	"os"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// R12 (6): writes fail, wherever they may. latchd may open a few descriptors more and then none: so its
// way to the kernel ends at another step for each number, between the file of the manifest and the last
// inner map. Until it succeeds the old set or the new one is in force, whole; then the new one is.
func TestR12WritesFail(t *testing.T) {
	sets := [2][]string{
		append(peers("10.20", 1500), aToB, "I C tcp/8080"),
		append(peers("10.22", 1500), aToB, "I D tcp/8080"),
	}
	l := newLive(t, sets[0], []string{"I 10.21.0.1/32 tcp/8080"})
	now := 0
	after := [2]string{"C > B tcp/8080 : allow\nD > B tcp/8080 : deny", "D > B tcp/8080 : allow\nC > B tcp/8080 : deny"}
	added := [2]string{"C > B tcp/8080 : allow", "D > B tcp/8080 : allow"} // additions are not waited with
	l.becomes("before", after[now])
	const rounds = 12
	failed := 0
	for more := range rounds {
		restore := l.limitDescriptors(more)
		now = 1 - now
		l.apply(chunk("big", "y", sets[now]...))
		for until := time.Now().Add(300 * time.Millisecond); time.Now().Before(until); time.Sleep(10 * time.Millisecond) {
			oldSet, newSet := l.judgeOnce(after[1-now]), l.judgeOnce(after[now])
			both := l.judgeOnce("C > B tcp/8080 : allow\nD > B tcp/8080 : allow") // while it settles
			if oldSet != nil && newSet != nil && both != nil {
				// A change between two of the questions makes all three wrong once.
				if again := l.judgeOnce("C > B tcp/8080 : deny\nD > B tcp/8080 : deny"); again == nil {
					t.Fatalf("with %d descriptors more neither set is in force", more)
				}
			}
		}
		if l.judgeOnce(added[now]) != nil {
			failed++
		}
		restore()
		l.apply(chunk("big", "y", append([]string{"I 10.23.0.1/32 tcp/8080"}, sets[now]...)...)) // has it read again
		l.becomes("with descriptors again", after[now])
	}
	if failed < 3 || failed == rounds {
		t.Errorf("%d of %d changes failed, want some at the first numbers and not the last", failed, rounds)
	}
	t.Logf("%d of %d changes waited for descriptors", failed, rounds)
	l.unharmed("writes failed")
}

// limitDescriptors lets latchd open so many descriptors more.
func (l *live) limitDescriptors(more int) (restore func()) {
	l.t.Helper()
	pid := l.node.Latchd.PID()
	entries, err := os.ReadDir("/proc/" + strconv.Itoa(pid) + "/fd")
	if err != nil {
		l.t.Fatal(err)
	}
	var old unix.Rlimit
	err = unix.Prlimit(pid, unix.RLIMIT_NOFILE, nil, &old)
	if err == nil {
		err = unix.Prlimit(pid, unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: freeDescriptor(entries, more), Max: old.Max}, nil)
	}
	if err != nil {
		l.t.Fatal(err)
	}
	var once bool
	restore = func() {
		if once {
			return
		}
		once = true
		if err := unix.Prlimit(pid, unix.RLIMIT_NOFILE, &old, nil); err != nil {
			l.t.Errorf("restore limit: %v", err)
		}
	}
	l.t.Cleanup(restore)
	return restore
}

// freeDescriptor is the limit below which so many numbers are free.
func freeDescriptor(open []os.DirEntry, more int) uint64 {
	taken := map[int]bool{}
	for _, e := range open {
		n, _ := strconv.Atoi(e.Name())
		taken[n] = true
	}
	for limit := 0; ; limit++ {
		if !taken[limit] {
			if more == 0 {
				return uint64(limit)
			}
			more--
		}
	}
}
