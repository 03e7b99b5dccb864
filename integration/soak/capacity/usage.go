package capacity

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/cilium/ebpf"

	"github.com/latch-cni/latch/integration/soak/stage"
)

// Usage is what latchd and the kernel hold.
type Usage struct {
	RSS         int64 // bytes
	Peak        int64 // of RSS, since resetPeak
	CPU         time.Duration
	Descriptors int
	Programs    int // of the machine
	Maps        int
	Pins        int
	Records     int
	Locks       int
}

func (u Usage) String() string {
	return fmt.Sprintf("%d MB, %d descriptors, %d programs, %d maps, %d pins, %d records, %d locks",
		u.RSS>>20, u.Descriptors, u.Programs, u.Maps, u.Pins, u.Records, u.Locks)
}

const ticks = 100 // a second, in /proc

func usage(s *stage.Stage) (u Usage, err error) {
	proc := fmt.Sprintf("/proc/%d", s.Node.Latchd.PID())
	status, err := os.ReadFile(proc + "/status")
	if err != nil {
		return u, err
	}
	for line := range strings.Lines(string(status)) {
		for name, to := range map[string]*int64{"VmRSS:": &u.RSS, "VmHWM:": &u.Peak} {
			if kb, ok := strings.CutPrefix(line, name); ok {
				n, _ := strconv.ParseInt(strings.Fields(kb)[0], 10, 64)
				*to = n << 10
			}
		}
	}
	stat, err := os.ReadFile(proc + "/stat")
	if err != nil {
		return u, err
	}
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+2:]))
	user, _ := strconv.Atoi(fields[11])
	system, _ := strconv.Atoi(fields[12])
	u.CPU = time.Duration(user+system) * time.Second / ticks
	fds, err := os.ReadDir(proc + "/fd")
	if err != nil {
		return u, err
	}
	u.Descriptors = len(fds)
	u.Programs = count(ebpf.ProgramGetNextID)
	u.Maps = count(ebpf.MapGetNextID)
	u.Pins = files(filepath.Join(s.Node.Bpffs, "latch"))
	u.Locks = files(filepath.Join(s.Node.StateDir, "locks"))
	u.Records = files(s.Node.StateDir) - u.Locks
	return u, nil
}

// resetPeak has the peak of latchd's memory counted anew.
func resetPeak(s *stage.Stage) error {
	const peak = "5" // clear_refs of proc(5)
	return os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", s.Node.Latchd.PID()), []byte(peak), 0)
}

// measure is what is used when something begins, from which on the peak of memory counts.
func measure(s *stage.Stage) (Usage, error) {
	if err := resetPeak(s); err != nil {
		return Usage{}, err
	}
	return usage(s)
}

// resting is the memory that latchd holds when it has nothing to do for some seconds.
func resting(ctx context.Context, s *stage.Stage) (rss int64, err error) {
	for range 6 {
		u, err := usage(s)
		if err != nil {
			return 0, err
		}
		rss = u.RSS
		select {
		case <-ctx.Done():
			return rss, ctx.Err()
		case <-time.After(time.Second):
		}
	}
	return rss, nil
}

func count[ID ~uint32](next func(ID) (ID, error)) int {
	n := 0
	for id := ID(0); ; n++ {
		var err error
		if id, err = next(id); err != nil {
			return n
		}
	}
}

func files(root string) int {
	n := 0
	_ = filepath.WalkDir(root, func(_ string, e os.DirEntry, err error) error {
		if err == nil && !e.IsDir() {
			n++
		}
		if errors.Is(err, os.ErrNotExist) {
			return nil
		}
		return err
	})
	return n
}
