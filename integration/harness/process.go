package harness

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

// Process is a program that runs in the background.
type Process struct {
	LogFile string

	cmd  *exec.Cmd
	done chan struct{}
	err  error // valid once done is closed
}

// Start runs a program with its output appended to a file. Called inside NetNS.Do, the program lives
// in that namespace, and it is killed when the namespace's thread ends: nothing outlives the node.
func Start(logFile, path string, args ...string) (*Process, error) {
	log, err := os.OpenFile(logFile, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open log: %w", err)
	}
	defer func() { _ = log.Close() }()
	p := &Process{LogFile: logFile, cmd: exec.Command(path, args...), done: make(chan struct{})}
	p.cmd.Stdout, p.cmd.Stderr = log, log
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", path, err)
	}
	go func() {
		p.err = p.cmd.Wait()
		close(p.done)
	}()
	return p, nil
}

// PID is the process id.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Running says whether the process has not ended; otherwise the error says how it did, with the end
// of its log.
func (p *Process) Running() error {
	select {
	case <-p.done:
		return fmt.Errorf("%s ended: %w\n%s", p.cmd.Path, errors.Join(p.err, errEnded), p.LogTail(20))
	default:
		return nil
	}
}

var errEnded = errors.New("process has ended")

// Stop asks the process to end, and kills it when it has not done so in time, which is an error.
func (p *Process) Stop(patience time.Duration) error {
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("stop %s: %w", p.cmd.Path, err)
	}
	select {
	case <-p.done:
	case <-time.After(patience):
		return errors.Join(fmt.Errorf("stop %s: still running %v after SIGTERM", p.cmd.Path, patience), p.Kill())
	}
	if p.err != nil {
		return fmt.Errorf("stop %s: %w\n%s", p.cmd.Path, p.err, p.LogTail(20))
	}
	return nil
}

// Kill ends the process without asking it, as a crash would.
func (p *Process) Kill() error {
	if err := p.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("kill %s: %w", p.cmd.Path, err)
	}
	<-p.done
	return nil
}

// LogTail returns the last lines of the process's output.
func (p *Process) LogTail(lines int) string { return tail(p.LogFile, lines) }

func tail(path string, lines int) string {
	raw, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	all := strings.Split(strings.TrimSpace(string(raw)), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}
