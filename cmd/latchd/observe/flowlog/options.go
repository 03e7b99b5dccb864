package flowlog

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"gopkg.in/natefinch/lumberjack.v2"
)

// Format is how a line looks.
type Format string

// Formats.
const (
	JSON Format = "json"
	AWS  Format = "aws" // the line of the AWS network policy agent
)

// Stdout is the name of standard output.
const Stdout = "stdout"

// Options of a flow log.
type Options struct {
	Node   string
	File   string // or Stdout; empty: no flow log
	Format Format
	Allows uint // one of so many admitted flows is logged; 0 = none
	Rate   uint // lines a second; 0 = no limit
	Size   uint // of a file, MiB
	Files  uint // rotated ones that are kept
}

// Check says what is wrong with the options.
func (o Options) Check() error {
	var errs []error
	if o.Format != JSON && o.Format != AWS {
		errs = append(errs, fmt.Errorf("--flow-log-format %q: use json or aws", o.Format))
	}
	if o.File != "" && o.File != Stdout && !filepath.IsAbs(o.File) {
		errs = append(errs, fmt.Errorf("--flow-log %q: must be an absolute path, stdout, or empty", o.File))
	}
	if o.Size == 0 {
		errs = append(errs, errors.New("--flow-log-max-size 0: must be more than zero"))
	}
	return errors.Join(errs...)
}

// open opens what lines go to. A file that cannot be written is found out now.
func (o Options) open() (io.WriteCloser, error) {
	if o.File == Stdout {
		return keepOpen{os.Stdout}, nil
	}
	// Only its own folder: with more missing, the path is probably mistyped.
	if err := os.Mkdir(filepath.Dir(o.File), 0o750); errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("--flow-log %s: folder %s does not exist", o.File, filepath.Dir(filepath.Dir(o.File)))
	} else if err != nil && !errors.Is(err, os.ErrExist) {
		return nil, fmt.Errorf("open flow log: %w", err)
	}
	f, err := os.OpenFile(o.File, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open flow log: %w", err)
	}
	if err := f.Close(); err != nil {
		return nil, fmt.Errorf("open flow log: %w", err)
	}
	// It takes 0 for "keep all".
	w := &lumberjack.Logger{Filename: o.File, MaxSize: int(o.Size), MaxBackups: int(max(o.Files, 1))}
	return w, nil
}

type keepOpen struct{ io.Writer }

func (keepOpen) Close() error { return nil }
