package main

import (
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// A value that cannot be meant is refused, and the flag is named.
func TestWrongValues(t *testing.T) {
	for _, arg := range []string{
		"--workers=0", "--workers=-1", "--grace=-1s", "--policy-wait=-1s", "--timeout-udp=0s", "--timeout-tcp-established=-1h",
		"--audit-period=0s", "--lock-timeout=0s", "--bpffs=bpf", "--state-dir=run/latch", "--node-ip=10.0.0", "--enforcing-mode=Strict",
		"--attach-mode=xdp", "--unknown-pods=deny", "--log-level=trace", "--flow-table-size=1023",
		"--flow-table-size=4194305", "--in-place", "--primary=10-aws.conflist", "--conflist-name=04-latch.conflist",
		"--conflist-name=../latch.conflist", "--status-addr=8164", "--metrics-addr=:816x", "--health-addr=localhost:70000",
		"--plugin-log-file=latch.log",
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

// Of a log file the folder is made, and no more: with more missing the path is mistyped.
func TestLogFileInNoFolder(t *testing.T) {
	file := filepath.Join(t.TempDir(), "a", "b", "latchd.log")
	if code, said := runWith(t, "--policy-dir", t.TempDir(), "--log-file", file); code != 2 || !strings.Contains(said, "--log-file "+file) {
		t.Errorf("exit code %d: %s", code, said)
	}
	if _, err := os.Stat(filepath.Dir(filepath.Dir(file))); err == nil {
		t.Error("folders were made")
	}
	if err := checkLogFile(filepath.Dir(file)); err != nil {
		t.Error(err)
	}
}

// A mistyped command is named, with the one that was meant; what is no command at all is, too.
func TestMistypedCommand(t *testing.T) {
	for word, want := range map[string]string{"instal": `unknown command "instal"; did you mean "install"?`, "Unistall": `did you mean "uninstall"?`, "run": "unknown command \"run\"\n"} {
		if code, said := runWith(t, word); code != 2 || !strings.Contains(said, want) {
			t.Errorf("%s: exit code %d, no %q in %s", word, code, want, said)
		}
	}
}

func TestNodeAddressThatIsNotHere(t *testing.T) {
	loopback, other := netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("203.0.113.9")
	got, err := notHere([]netip.Addr{loopback, other, netip.MustParseAddr("2001:db8::9")})
	if want := []netip.Addr{other, netip.MustParseAddr("2001:db8::9")}; err != nil || !slices.Equal(got, want) {
		t.Errorf("got %v, %v, want %v", got, err, want)
	}
}
