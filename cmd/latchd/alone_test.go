package main

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/latch-cni/latch/shared/testenv"
)

// Two latchds share neither records nor kernel objects: a folder of each is held, on bpffs, too.
func TestStayAlone(t *testing.T) {
	testenv.RequireRoot(t)
	for flag, folder := range map[string]string{"--state-dir": testenv.StateDir(t), "--bpffs": filepath.Join(testenv.BPFFS(t), "latch")} {
		release, err := stayAlone(flag, folder)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := stayAlone(flag, folder); err == nil || !strings.Contains(err.Error(), "another latchd works on "+folder+" ("+flag+")") {
			t.Errorf("second latchd: %v", err)
		}
		release()
		again, err := stayAlone(flag, folder)
		if err != nil {
			t.Errorf("after the first has ended: %v", err)
			continue
		}
		again()
	}
}
