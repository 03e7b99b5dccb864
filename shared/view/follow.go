package view

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/latch-cni/latch/shared/state"
)

// followPeriod is how often a file that is followed is looked at.
const followPeriod = 200 * time.Millisecond

// ErrFlowLogOff says that latchd writes no flow log, or not to a file.
var ErrFlowLogOff = errors.New("no flow log to read")

// FlowLog is the file of verdicts that latchd writes. It is read as a file and not from the ring buffer,
// which has one consumer: whoever else reads it takes events away from latchd.
func (n *Node) FlowLog() (string, error) {
	s, err := n.store.ReadSettings()
	if err != nil {
		return "", err
	}
	switch s.FlowLog {
	case "":
		return "", fmt.Errorf("%w: it is off, and verdicts make no events. Start latchd with --flow-log=/var/log/latch/flows.log "+
			"(LATCH_FLOW_LOG in conf/settings.env). What is dropped is counted in any case: latchctl counters", ErrFlowLogOff)
	case "stdout":
		return "", fmt.Errorf("%w: latchd writes it to its standard output. Pipe that into: latchctl events --file -", ErrFlowLogOff)
	}
	return s.FlowLog, nil
}

// Owner returns a function that finds the pod with an address. It reads the records again when it meets
// an address that it does not know, once a second at most.
func (n *Node) Owner() func(netip.Addr) (namespace, pod string) {
	var owners map[netip.Addr]state.Attachment
	var at time.Time
	return func(addr netip.Addr) (string, string) {
		if _, known := owners[addr]; !known && time.Since(at) > time.Second {
			owners, at = map[netip.Addr]state.Attachment{}, time.Now()
			attachments, _ := n.store.ListAttachments() // the readable ones
			for _, a := range attachments {
				for _, in := range a.Interfaces {
					owners[in.Addr4], owners[in.Addr6] = a, a
				}
			}
			delete(owners, netip.Addr{})
		}
		return owners[addr].PodNamespace, owners[addr].PodName
	}
}

// ReadLines calls fn for every line of r.
func ReadLines(r io.Reader, fn func([]byte) error) error {
	scan := bufio.NewScanner(r)
	scan.Buffer(make([]byte, 0, 64<<10), 1<<20)
	for scan.Scan() {
		if err := fn(scan.Bytes()); err != nil {
			return err
		}
	}
	return scan.Err()
}

// ReadFile calls fn for every line of a file. One that is not there any more has none.
func ReadFile(path string, fn func([]byte) error) error {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	return ReadLines(f, fn)
}

// tailBytes is how much of a file's end Tail looks at.
const tailBytes = 512 << 10

// Tail returns the last lines of a file, the newest last: what of them lies in its last half MiB.
func Tail(path string, lines int) ([][]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	st, err := f.Stat()
	if err != nil {
		return nil, err
	}
	from := max(0, st.Size()-tailBytes)
	raw, err := io.ReadAll(io.NewSectionReader(f, from, tailBytes))
	if err != nil {
		return nil, err
	}
	all := bytes.Split(bytes.TrimSuffix(raw, []byte("\n")), []byte("\n"))
	if from > 0 {
		all = all[1:] // may be torn
	}
	if len(raw) == 0 {
		all = nil
	}
	return all[max(0, len(all)-lines):], nil
}

// Follower reads a file that grows, and is renamed and begun anew when it is full.
type Follower struct {
	path string
	file *os.File
	rest []byte // of a line that is not whole yet
}

// Follow opens a file for following it from its beginning on. A file that is not there yet is no error.
func Follow(path string) (*Follower, error) {
	f := &Follower{path: path}
	return f, f.open()
}

// Close closes the file.
func (f *Follower) Close() error {
	if f.file == nil {
		return nil
	}
	return f.file.Close()
}

// rotated is the time in the name of a file that was put aside.
const rotated = "2006-01-02T15-04-05.000"

// Older returns the files that the followed one was rotated into before it was opened, the oldest first:
// those that may hold something of a time since when. Zero: all.
func (f *Follower) Older(since time.Time) ([]string, error) {
	dir, ext := filepath.Dir(f.path), filepath.Ext(f.path)
	prefix := strings.TrimSuffix(filepath.Base(f.path), ext) + "-"
	entries, err := os.ReadDir(dir) // sorted by name, and so by time
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var own os.FileInfo
	if f.file != nil {
		if own, err = f.file.Stat(); err != nil {
			return nil, err
		}
	}
	var older []string
	for _, e := range entries {
		at, ok := strings.CutPrefix(strings.TrimSuffix(e.Name(), ext), prefix)
		info, err := e.Info()
		if _, bad := time.Parse(rotated, at); bad != nil || !ok || filepath.Ext(e.Name()) != ext || err != nil {
			continue
		}
		if own != nil && os.SameFile(own, info) {
			break // it was put aside since it was opened
		}
		if !info.ModTime().Before(since) {
			older = append(older, filepath.Join(dir, e.Name()))
		}
	}
	return older, nil
}

// Run calls fn for each line until the context ends, which is no error.
func (f *Follower) Run(ctx context.Context, fn func([]byte) error) error {
	tick := time.NewTicker(followPeriod)
	defer tick.Stop()
	for {
		if err := f.More(fn); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// More calls fn for each line that has come since.
func (f *Follower) More(fn func([]byte) error) error {
	if f.file == nil {
		if err := f.open(); f.file == nil {
			return err
		}
	}
	moved := f.moved() // before reading: what is written until the rename is in the old file
	if err := f.read(fn); err != nil || !moved {
		return err
	}
	if err := f.read(fn); err != nil {
		return err
	}
	_ = f.file.Close()
	f.file, f.rest = nil, nil
	if err := f.open(); f.file == nil {
		return err
	}
	return f.read(fn)
}

func (f *Follower) open() error {
	file, err := os.Open(f.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	f.file = file
	if err != nil {
		f.file = nil
	}
	return err
}

// moved tells whether the path names another file by now, or this one was cut.
func (f *Follower) moved() bool {
	now, err := os.Stat(f.path)
	if err != nil {
		return errors.Is(err, fs.ErrNotExist)
	}
	own, err := f.file.Stat()
	if err != nil || !os.SameFile(own, now) {
		return true
	}
	at, err := f.file.Seek(0, io.SeekCurrent)
	return err == nil && at > own.Size()
}

func (f *Follower) read(fn func([]byte) error) error {
	chunk := make([]byte, 64<<10)
	for {
		n, err := f.file.Read(chunk)
		f.rest = append(f.rest, chunk[:n]...)
		for {
			line, rest, whole := bytes.Cut(f.rest, []byte("\n"))
			if !whole {
				break
			}
			f.rest = rest
			if err := fn(line); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}
