package crash

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"
	"unsafe"

	"github.com/containernetworking/cni/pkg/types"
	"golang.org/x/sys/unix"

	"github.com/latch-cni/latch/integration/soak/stage"
)

// starveEnv makes the process that runs this package's Helper starve itself and then become another
// program: "files=N", or "bpf=COMMAND:ERRNO".
const starveEnv = "LATCH_SOAK_STARVE"

// Helper becomes the program that the environment asks for, and returns when it asks for none. Mains of
// programs and tests that use this package call it first.
func Helper() {
	what := os.Getenv(starveEnv)
	if what == "" {
		return
	}
	runtime.LockOSThread()
	key, value, _ := strings.Cut(what, "=")
	var err error
	switch key {
	case "files":
		var n uint64
		if n, err = strconv.ParseUint(value, 10, 64); err == nil {
			err = unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: n, Max: n})
		}
	case "bpf":
		var cmd, errno uint32
		if _, err = fmt.Sscanf(value, "%d:%d", &cmd, &errno); err == nil {
			err = refuse(cmd, errno)
		}
	default:
		err = fmt.Errorf("starve %q", what)
	}
	if err == nil {
		_ = os.Unsetenv(starveEnv)
		err = unix.Exec(os.Args[1], os.Args[1:], os.Environ())
	}
	fmt.Fprintln(os.Stderr, "starve:", err)
	os.Exit(125)
}

// refuse has every bpf call of one command fail from now on, in what this thread becomes.
func refuse(cmd, errno uint32) error {
	const (
		load, jumpEqual, ret       = unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, unix.BPF_RET | unix.BPF_K
		offsetNumber, argument     = 0, 16 // of the call, and of its first argument
		seccompErrno, seccompAllow = 0x00050000, 0x7fff0000
	)
	filter := []unix.SockFilter{
		{Code: load, K: offsetNumber},
		{Code: jumpEqual, K: unix.SYS_BPF, Jf: 3},
		{Code: load, K: argument},
		{Code: jumpEqual, K: cmd, Jf: 1},
		{Code: ret, K: seccompErrno | errno},
		{Code: ret, K: seccompAllow},
	}
	prog := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	return unix.Prctl(unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER, uintptr(unsafe.Pointer(&prog)), 0, 0)
}

// Starvation is how often the plugin was run with too little, and what came of it.
type Starvation struct {
	Runs, Refused, InForce int
	Messages               map[string]int // of refusals, the first words
}

// commands are the calls of bpf(2) that the plugin makes at some time.
var commands = map[string]uint32{"map create": 0, "map lookup": 1, "map update": 2, "prog load": 5, "obj pin": 6, "obj get": 7,
	"info": 15, "map lookup by id": 14, "query": 16, "btf load": 18, "link create": 28}

// Starve runs ADD with few descriptors, and with calls of the kernel that fail, on a node whose objects
// are pinned and on one where they have to be loaded. Each run ends with the pod in force, or with an error
// of CNI and the pod absent or closed.
func Starve(ctx context.Context, o stage.Options) (st Starvation, err error) {
	st.Messages = map[string]int{}
	o.Latchd = append(o.Latchd, "--audit-period", "1s")
	policy := stage.Policy{App: app, Peers: 20}
	s, old, watch, err := begin(ctx, o, policy)
	if err != nil {
		return st, err
	}
	defer func() { err = errors.Join(err, s.Close(ctx)) }()
	defer watch.Stop()
	for n := 4; n < 48; n += 3 {
		if err := st.one(s, fmt.Sprintf("files=%d", n), nil); err != nil {
			return st, err
		}
	}
	for name, cmd := range commands {
		for _, errno := range []unix.Errno{unix.EPERM, unix.ENOMEM} {
			for _, mode := range []string{"clsact", "tcx"} {
				err := st.one(s, fmt.Sprintf("bpf=%d:%d", cmd, errno), map[string]any{"attachMode": mode})
				if err != nil {
					return st, fmt.Errorf("%s fails with %w, mode %s: %w", name, errno, mode, err)
				}
			}
		}
	}
	err = errors.Join(s.Whole(ctx, 1, 15*time.Second), watch.Stop().Err(), old.Obeys(patience), old.Remove())
	return st, errors.Join(err, s.Delete(policy))
}

// one runs a starved ADD, and then one that is not.
func (st *Starvation) one(s *stage.Stage, starve string, entry map[string]any) error {
	p, err := s.NewPod("starved", labels)
	if err != nil {
		return err
	}
	p.Entry = entry
	if err := p.Publish(); err != nil {
		return err
	}
	cmd, out := p.Command("ADD")
	self, err := os.Executable()
	if err != nil {
		return err
	}
	starved := exec.Command(self, cmd.Path)
	starved.Stdin, starved.Stdout, starved.Stderr = cmd.Stdin, cmd.Stdout, cmd.Stderr
	starved.Env = append(cmd.Env, starveEnv+"="+starve)
	runErr := s.OnNode(starved.Run)
	st.Runs++
	if runErr == nil {
		st.InForce++
		err = p.Obeys(patience)
	} else {
		st.Refused++
		err = errors.Join(st.refused(starve, runErr, out, starved.Stderr.(*bytes.Buffer)), p.Closed())
	}
	if err != nil {
		return err
	}
	_, addErr := add(p)
	return errors.Join(addErr, p.Obeys(patience), p.Remove())
}

// refused requires an error of CNI, but when there are not even descriptors to say it: then the exit code
// has to do.
func (st *Starvation) refused(starve string, runErr error, out, stderr *bytes.Buffer) error {
	refusal := &types.Error{}
	if json.Unmarshal(out.Bytes(), refusal) == nil && refusal.Msg != "" {
		words := slices.DeleteFunc(strings.Fields(refusal.Msg), func(w string) bool { return strings.Contains(w, "/") })
		st.Messages[strings.Join(words[:min(5, len(words))], " ")]++
		return nil
	}
	if strings.HasPrefix(starve, "files=") {
		st.Messages["(the Go runtime could not start)"]++
		return nil
	}
	return fmt.Errorf("%s: %w without an error of CNI: stdout %q, stderr %q", starve, runErr, out, stderr)
}
