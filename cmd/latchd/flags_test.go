package main

import (
	"strings"
	"testing"
)

// A value that cannot be meant is refused, and the flag is named.
func TestWrongValues(t *testing.T) {
	for _, arg := range []string{
		"--workers=0", "--workers=-1", "--grace=-1s", "--policy-wait=-1s", "--timeout-udp=0s", "--timeout-tcp-established=-1h",
		"--audit-period=0s", "--lock-timeout=0s", "--bpffs=bpf", "--node-ip=10.0.0", "--enforcing-mode=Strict",
		"--attach-mode=xdp", "--unknown-pods=deny", "--log-level=trace", "--flow-table-size=1023",
		"--flow-table-size=4194305",
	} {
		_, err := parseFlags([]string{"--policy-dir", "/p", arg})
		if flag, _, _ := strings.Cut(arg, "="); err == nil || !strings.Contains(err.Error(), flag) {
			t.Errorf("%s: %v", arg, err)
		}
	}
	if _, err := parseFlags([]string{"--policy-dir", "/p", "--grace=0s", "--policy-wait=0s", "--workers=1"}); err != nil {
		t.Error(err)
	}
}
