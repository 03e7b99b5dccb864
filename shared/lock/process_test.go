package lock

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// The test binary starts itself again as another process that locks.
const (
	envRole = "LATCH_LOCK_TEST_ROLE"
	envDir  = "LATCH_LOCK_TEST_DIR"
)

func TestMain(m *testing.M) {
	switch os.Getenv(envRole) {
	case "hold":
		os.Exit(holdForever(os.Getenv(envDir)))
	case "contend":
		os.Exit(contend(os.Getenv(envDir)))
	}
	os.Exit(m.Run())
}

func start(t *testing.T, role, dir string) (*exec.Cmd, *bufio.Reader) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), envRole+"="+role, envDir+"="+dir)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return cmd, bufio.NewReader(out)
}

func holdForever(dir string) int {
	if _, err := New(dir).Acquire(context.Background(), time.Second, idA); err != nil {
		fmt.Println(err)
		return 1
	}
	fmt.Println("held")
	time.Sleep(time.Minute)
	return 1
}

// A holder that is stopped keeps the lock, and is named; one that is killed loses it at once.
func TestStoppedAndKilledHolder(t *testing.T) {
	dir := t.TempDir()
	cmd, out := start(t, "hold", dir)
	if line, err := out.ReadString('\n'); line != "held\n" {
		t.Fatalf("holder says %q, %v", line, err)
	}
	if err := cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	_, err := New(dir).Acquire(context.Background(), 100*time.Millisecond, idA)
	var timeout *TimeoutError
	if !errors.As(err, &timeout) {
		t.Fatalf("got %v, want a TimeoutError", err)
	}
	if want := fmt.Sprintf("pid=%d ", cmd.Process.Pid); !strings.Contains(timeout.Holder, want) {
		t.Errorf("holder %q does not name %q", timeout.Holder, want)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	h, err := New(dir).Acquire(context.Background(), 5*time.Second, idA)
	if err != nil {
		t.Fatal(err)
	}
	_ = h.Release()
}

// Processes and goroutines take one lock and remove its file as often as they keep it. Never are two
// inside at once.
func TestRemovalNeverLetsTwoIn(t *testing.T) {
	dir := t.TempDir()
	var wg sync.WaitGroup
	for range 3 {
		_, out := start(t, "contend", dir)
		wg.Go(func() {
			line, err := out.ReadString('\n')
			if line != "done\n" {
				t.Errorf("process says %q, %v", line, err)
			}
		})
	}
	if code := contend(dir); code != 0 {
		t.Error("two holders inside")
	}
	wg.Wait()
}

const (
	contenders = 3
	rounds     = 80
)

func contend(dir string) int {
	d := New(filepath.Join(dir, "locks"))
	inside := filepath.Join(dir, "inside")
	errs := make(chan error, contenders)
	for g := range contenders {
		go func() {
			for r := range rounds {
				if err := visit(d, inside, (g+r)%2 == 0); err != nil {
					errs <- err
					return
				}
			}
			errs <- nil
		}()
	}
	var all []error
	for range contenders {
		all = append(all, <-errs)
	}
	if err := errors.Join(all...); err != nil {
		fmt.Println(strings.ReplaceAll(err.Error(), "\n", "; "))
		return 1
	}
	fmt.Println("done")
	return 0
}

// visit fails if the mark that stands for being inside is there already. It tries without the pauses
// of Acquire, to meet the moment between a removal and the end of the remover's lock.
func visit(d Dir, mark string, remove bool) error {
	h := &Held{}
	for len(h.files) == 0 {
		f, err := try(filepath.Join(d.path, string(idA)+".lock"))
		if err != nil {
			return err
		}
		if f != nil {
			h.files = append(h.files, f)
		}
	}
	f, err := os.OpenFile(mark, os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return fmt.Errorf("two inside: %w", err)
	}
	_ = f.Close()
	runtime.Gosched()
	if err := os.Remove(mark); err != nil {
		return err
	}
	if remove {
		return h.ReleaseAndRemove()
	}
	return h.Release()
}
