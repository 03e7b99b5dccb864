package state

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// Nobody takes the word of failed ADDs away while latchd is down: they must not fill the memory.
func TestFailuresAreBounded(t *testing.T) {
	s := New(t.TempDir())
	write := func(pod, message string) {
		t.Helper()
		if err := s.WriteFailure(Failure{PodNamespace: "t1", PodName: pod, Message: message, At: now}); err != nil {
			t.Fatal(err)
		}
	}
	for i := range maxFailures + 10 {
		write(fmt.Sprint("p", i), "first")
	}
	write("p3", "again")
	all, err := s.ListFailures()
	if err != nil || len(all) != maxFailures {
		t.Fatalf("%d failures, %v, want %d", len(all), err, maxFailures)
	}
	again := 0
	for _, f := range all {
		if f.PodName == "p3" && f.Message == "again" {
			again++
		}
		if err := s.DeleteFailure(f); err != nil {
			t.Error(err)
		}
	}
	if again != 1 {
		t.Errorf("%d failures of p3 with the newest words, want 1", again)
	}
	write("new", "there is room again")
	if all, err := s.ListFailures(); err != nil || len(all) != 1 {
		t.Errorf("%v, %v, want one", all, err)
	}
	if err := s.DeleteFailures(); err != nil {
		t.Error(err)
	}
	if err := s.RemoveFolders(); err != nil {
		t.Error(err)
	}
}

// A node without a folder of records does not get one by a failure.
func TestFailureMakesNoStateFolder(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "latch")
	if err := New(dir).WriteFailure(Failure{PodNamespace: "t1", PodName: "p"}); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(dir); err == nil {
		t.Error("the folder was made")
	}
}
