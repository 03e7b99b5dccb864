package plugin

import (
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// maxLogSize is where the log file is put aside as <name>.1, which replaces the one before it: so the
// log takes at most about twice this, whatever the churn of pods.
const maxLogSize = 8 << 20

// openLog returns a structured log that appends to the file, and the function that closes it. A log
// that cannot be opened must not keep a pod from starting: the log then goes to stderr, which runtimes
// show when the plugin fails, and says why. stdout belongs to the result.
func openLog(path string, level slog.Level) (*slog.Logger, func()) {
	file, err := openLogFile(path)
	if err != nil {
		log := newLogger(os.Stderr, level)
		log.Warn("log to stderr", "err", err)
		return log, func() {}
	}
	return newLogger(file, level), func() { _ = file.Close() }
}

func newLogger(w io.Writer, level slog.Level) *slog.Logger {
	return slog.New(slog.NewJSONHandler(w, &slog.HandlerOptions{Level: level}))
}

func openLogFile(path string) (*os.File, error) {
	file, err := appendTo(path)
	if err != nil {
		return nil, err
	}
	info, err := file.Stat()
	if err != nil || info.Size() < maxLogSize {
		return file, nil
	}
	if err := rotate(path, file, info); err != nil {
		return file, nil // still a log, only a longer one
	}
	rotated, err := appendTo(path)
	if err != nil {
		return file, nil
	}
	_ = file.Close()
	return rotated, nil
}

func appendTo(path string) (*os.File, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, fmt.Errorf("open log: %w", err)
	}
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE|unix.O_NONBLOCK, 0o640)
	if err != nil {
		return nil, fmt.Errorf("open log: %w", err)
	}
	return file, nil
}

// rotate moves the file away, unless another plugin process has done so since it was opened.
func rotate(path string, file *os.File, opened os.FileInfo) error {
	if err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return err // somebody else is at it
	}
	defer func() { _ = unix.Flock(int(file.Fd()), unix.LOCK_UN) }()
	now, err := os.Stat(path)
	if err != nil {
		return err
	}
	if !os.SameFile(opened, now) {
		return nil
	}
	return os.Rename(path, path+".1")
}
