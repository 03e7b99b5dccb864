package flowlog

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/ringbuf"
	"golang.org/x/sys/unix"

	"github.com/latch-cni/latch/bpf"
	"github.com/latch-cni/latch/shared/policy"
	"github.com/latch-cni/latch/shared/state"
)

const (
	readPause    = 200 * time.Millisecond // the kernel wakes the reader now and then only
	flushSize    = 32 << 10
	maxDeferred  = 512 // events that wait for their records
	noticePeriod = 10 * time.Second
	errorPeriod  = time.Minute
)

// Stats are numbers of events since the start.
type Stats struct {
	Denies, Allows uint64 // written
	Limited        uint64 // left out: more than the rate
	Sampled        uint64 // left out: not the one in so many
	Failed         uint64 // lost: could not be written
}

// Log is a flow log. Make one with Open.
type Log struct {
	opts    Options
	source  func() *ebpf.Map // the ring buffer, as it is pinned now
	log     *slog.Logger
	out     io.WriteCloser
	names   resolver
	limiter *limiter

	denies, allows, limited, sampled, failed atomic.Uint64

	flows    uint64 // admitted ones seen
	buf      []byte
	inBuf    [2]uint64 // lines by verdict
	deferred []bpf.Event
	offset   time.Duration // of the wall clock from the programs' clock
	noticed  Stats
	noticeAt time.Time
	errorAt  time.Time
}

// Open opens the log's file. It fails when that cannot be written.
func Open(o Options, store state.Store, source func() *ebpf.Map, log *slog.Logger) (*Log, error) {
	out, err := o.open()
	if err != nil {
		return nil, err
	}
	return &Log{opts: o, source: source, log: log, out: out, names: resolver{store: store, log: log},
		limiter: newLimiter(o.Rate), noticeAt: time.Now()}, nil
}

// Stats returns the numbers. Safe to call at any time.
func (l *Log) Stats() Stats {
	return Stats{l.denies.Load(), l.allows.Load(), l.limited.Load(), l.sampled.Load(), l.failed.Load()}
}

// Run reads events until the context ends, then closes the log. When the ring buffer is replaced it
// reads the new one.
func (l *Log) Run(ctx context.Context) {
	defer func() {
		l.flush()
		_ = l.out.Close()
	}()
	for ctx.Err() == nil {
		if err := l.follow(ctx); err != nil {
			l.log.Error("read events, trying again", "error", err)
			select {
			case <-ctx.Done():
			case <-time.After(time.Second):
			}
		}
	}
}

// follow reads one ring buffer for as long as it is the one that is pinned.
func (l *Log) follow(ctx context.Context) error {
	ring := l.source()
	if ring == nil {
		return errors.New("kernel objects are closed")
	}
	r, err := ringbuf.NewReader(ring)
	if err != nil {
		return fmt.Errorf("open ring buffer: %w", err)
	}
	defer func() { _ = r.Close() }()
	var rec ringbuf.Record
	for ctx.Err() == nil && l.source() == ring {
		l.clock()
		until := time.Now().Add(readPause)
		r.SetDeadline(until)
		for n := 1; ; n++ {
			err := r.ReadInto(&rec)
			if errors.Is(err, os.ErrDeadlineExceeded) {
				break
			}
			if err != nil {
				return fmt.Errorf("read ring buffer: %w", err)
			}
			l.take(rec.RawSample)
			if rec.Remaining == 0 || (n%1024 == 0 && time.Now().After(until)) {
				break
			}
		}
		l.settle()
		l.flush()
		l.notice()
	}
	return nil
}

// clock finds out how far apart the clocks are: the wall clock is set now and then.
func (l *Log) clock() {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err == nil {
		l.offset = time.Duration(time.Now().UnixNano() - ts.Nano())
	}
}

// take takes one event.
func (l *Log) take(sample []byte) {
	var e bpf.Event
	if len(sample) < int(unsafe.Sizeof(e)) {
		return
	}
	copy(unsafe.Slice((*byte)(unsafe.Pointer(&e)), unsafe.Sizeof(e)), sample)
	if e.Allow != 0 {
		if l.opts.Allows == 0 {
			return // switched off a moment ago
		}
		if l.flows++; (l.flows-1)%uint64(l.opts.Allows) != 0 {
			l.sampled.Add(1)
			return
		}
	}
	if !l.limiter.allow(e.Pod, time.Now()) {
		l.limited.Add(1)
		return
	}
	line, whole := l.names.resolve(&e)
	if !whole {
		l.names.refresh()
		line, whole = l.names.resolve(&e)
	}
	if !whole && len(l.deferred) < maxDeferred {
		l.deferred = append(l.deferred, e)
		return
	}
	l.write(&e, line)
}

// settle writes the events that waited for their records, once these have been read again.
func (l *Log) settle() {
	if len(l.deferred) == 0 || !l.names.refresh() {
		return
	}
	for i := range l.deferred {
		line, _ := l.names.resolve(&l.deferred[i])
		l.write(&l.deferred[i], line)
	}
	l.deferred = l.deferred[:0]
}

func (l *Log) write(e *bpf.Event, line line) {
	line.Time = time.Unix(0, int64(e.Time)).Add(l.offset).UTC()
	line.Node = l.opts.Node
	l.buf = line.appendTo(l.buf, l.opts.Format)
	l.inBuf[e.Allow&1]++
	if len(l.buf) >= flushSize {
		l.flush()
	}
}

// flush writes whole lines. A log that cannot be written is said so once a minute.
func (l *Log) flush() {
	if len(l.buf) == 0 {
		return
	}
	_, err := l.out.Write(l.buf)
	if err != nil {
		l.failed.Add(l.inBuf[0] + l.inBuf[1])
		if time.Since(l.errorAt) > errorPeriod {
			l.log.Error("write flow log, lines are lost", "error", err)
			l.errorAt = time.Now()
		}
	} else {
		l.denies.Add(l.inBuf[policy.Deny])
		l.allows.Add(l.inBuf[policy.Allow])
	}
	l.buf, l.inBuf = l.buf[:0], [2]uint64{}
}

// notice says in the log what the log has left out.
func (l *Log) notice() {
	if l.opts.Format != JSON || time.Since(l.noticeAt) < noticePeriod {
		return
	}
	now := l.Stats()
	n := notice{Time: time.Now().UTC(), Node: l.opts.Node, Suppressed: map[string]uint64{}}
	for cause, grown := range map[string]uint64{
		"rate": now.Limited - l.noticed.Limited, "sampling": now.Sampled - l.noticed.Sampled, "write": now.Failed - l.noticed.Failed,
	} {
		if grown > 0 {
			n.Suppressed[cause] = grown
		}
	}
	l.noticed, l.noticeAt = now, time.Now()
	if len(n.Suppressed) == 0 {
		return
	}
	if raw, err := json.Marshal(n); err == nil {
		_, _ = l.out.Write(append(raw, '\n'))
	}
}
