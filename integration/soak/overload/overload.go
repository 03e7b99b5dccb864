// Package overload denies more packets than anybody can log, and requires that every one of them is
// counted, that the log stays within its bound, that losses of events are counted, and that a pod whose
// traffic is allowed sees nothing of it.
package overload

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/latch-cni/latch/integration/soak/stage"
)

// Figures are what an overload led to.
type Figures struct {
	Sent           uint64 // packets that are denied
	Counted        uint64
	LostEvents     uint64
	Took           time.Duration
	LogBytes       int64
	LatchdCPU      time.Duration
	stage.Verdicts // of the pod beside it
}

// Bounds of the flow log in this play: the file that is written to, and one that was closed.
const logMegabytes = 2

// Run has one pod send, for a length of time, so many packets a second that its policy denies.
func Run(ctx context.Context, o stage.Options, rate int, length time.Duration) (f Figures, err error) {
	dir, err := os.MkdirTemp("", "latch-flows-")
	if err != nil {
		return f, err
	}
	defer os.RemoveAll(dir)
	o.Latchd = append(o.Latchd, "--flow-log", filepath.Join(dir, "flows.log"), "--flow-log-max-size", fmt.Sprint(logMegabytes), "--flow-log-files", "1")
	s, err := stage.New(ctx, o)
	if err != nil {
		return f, err
	}
	defer func() { err = errors.Join(err, s.Close(ctx)) }()
	policy := stage.Policy{App: "a", Peers: 20}
	if err := s.Write(policy); err != nil {
		return f, err
	}
	loud, err := s.Start("loud", map[string]string{"app": "a", "loud": "yes"}, nil)
	if err != nil {
		return f, err
	}
	quiet, err := s.Start("quiet", map[string]string{"app": "a"}, nil)
	if err != nil {
		return f, err
	}
	before, lost, err := denied(s, loud)
	if err != nil {
		return f, err
	}
	cpu := processor(s.Node.Latchd.PID())
	watch := stage.NewWatch(5*time.Millisecond, quiet)
	defer watch.Stop()
	began := time.Now()
	for time.Since(began) < length && ctx.Err() == nil {
		for f.Sent < uint64(time.Since(began).Seconds()*float64(rate)) {
			if err := loud.Send(stage.Never); err != nil {
				return f, err
			}
			f.Sent++
		}
		time.Sleep(time.Millisecond)
	}
	f.Took = time.Since(began)
	f.LatchdCPU = processor(s.Node.Latchd.PID()) - cpu
	f.Verdicts = watch.Stop()
	after, lostAfter, err := denied(s, loud)
	if err != nil {
		return f, err
	}
	f.Counted, f.LostEvents, f.LogBytes = after-before, lostAfter-lost, size(dir)
	switch {
	case f.Counted != f.Sent:
		err = fmt.Errorf("%d packets were denied, %d are counted", f.Sent, f.Counted)
	case f.LogBytes > (2*logMegabytes+1)<<20:
		err = fmt.Errorf("the flow log has %d bytes", f.LogBytes)
	case loud.Out.Of(stage.Never) > 0:
		err = errors.New("packets that no policy allows arrived")
	}
	return f, errors.Join(err, f.Verdicts.Err(), s.Node.Latchd.Running(), loud.Remove(), quiet.Remove(), s.Delete(policy))
}

// denied is how many packets of a pod the kernel has counted as denied, and how many events were lost.
func denied(s *stage.Stage, p *stage.Pod) (n, lost uint64, err error) {
	err = s.OnNode(func() error {
		v, err := s.View()
		if err != nil {
			return err
		}
		defer v.Close()
		counters, events, err := v.Counters(nil)
		for _, c := range counters {
			if len(c.Pods) == 1 && c.Pods[0] == p.Key() && c.Verdict == "deny" && c.Direction == "egress" {
				n += c.Packets
			}
		}
		lost = events
		return err
	})
	return n, lost, err
}

func size(dir string) (n int64) {
	entries, _ := os.ReadDir(dir)
	for _, e := range entries {
		if info, err := e.Info(); err == nil {
			n += info.Size()
		}
	}
	return n
}

// processor is the time that a process has used.
func processor(pid int) time.Duration {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	fields := strings.Fields(string(raw[strings.LastIndexByte(string(raw), ')')+2:]))
	user, _ := strconv.Atoi(fields[11])
	system, _ := strconv.Atoi(fields[12])
	return time.Duration(user+system) * 10 * time.Millisecond
}
