package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/latch-cni/latch/shared/view"
)

// topPeriod is how often the screen is drawn.
const topPeriod = time.Second

func (a *app) top() *cobra.Command {
	var once bool
	c := &cobra.Command{
		Use:   "top",
		Short: "Watch pods, verdict rates and what is denied most",
		Long: `Draws the node each second: pods that are not in force first, then those that drop most; new flows and drops a
second from the kernel's counters; and who is denied most, by the flow log of the last minute when it is on,
else by reason. A rate with * is that of several pods, which share rules since no policy can tell them apart.

q quits. With --once it measures for a second, prints, and ends; -o json and yaml do so, too.`,
		Example: `  latchctl top
  latchctl top --once -o json | jq '.pods[] | select(.dropsPerSecond > 0)'`,
		Args: args(0, 0),
		RunE: func(c *cobra.Command, _ []string) error {
			ctx, stop := signal.NotifyContext(c.Context(), os.Interrupt, syscall.SIGTERM)
			defer stop()
			return a.node(func(n *view.Node) error {
				s := newSampler(n)
				defer s.close()
				if once || a.output != "table" {
					return a.topOnce(ctx, s)
				}
				return a.watch(ctx, s)
			})
		},
	}
	c.Flags().BoolVar(&once, "once", false, "print one screen, and end")
	return c
}

func (a *app) topOnce(ctx context.Context, s *sampler) error {
	if _, err := s.sample(); err != nil {
		return err
	}
	select {
	case <-ctx.Done():
		return nil
	case <-time.After(topPeriod):
	}
	now, err := s.sample()
	if err != nil {
		return err
	}
	return a.print(now, func(w io.Writer) {
		for _, line := range frame(now, 120, len(now.Pods)+len(now.Denied)+12) {
			fmt.Fprintln(w, strings.TrimRight(strings.TrimPrefix(line, keysFoot), " "))
		}
	})
}

// What a terminal understands, whichever it is.
const (
	enterScreen = "\x1b[?1049h\x1b[?25l" // another screen, no cursor
	leaveScreen = "\x1b[?25h\x1b[?1049l"
	home        = "\x1b[H"
	eraseLine   = "\x1b[K"
	eraseBelow  = "\x1b[J"
	bold        = "\x1b[1m"
	plain       = "\x1b[0m"
)

// watch draws until q is typed or the context ends.
func (a *app) watch(ctx context.Context, s *sampler) error {
	in, isFile := a.in.(*os.File)
	out, isFileToo := a.out.(*os.File)
	if !isFile || !isFileToo {
		return errNoTerminal
	}
	old, err := unix.IoctlGetTermios(int(in.Fd()), unix.TCGETS)
	if err != nil {
		return errNoTerminal
	}
	if _, _, err := size(out); err != nil {
		return errNoTerminal
	}
	raw := *old
	raw.Lflag &^= unix.ICANON | unix.ECHO // signals stay: ctrl-c ends it, too
	raw.Cc[unix.VMIN], raw.Cc[unix.VTIME] = 1, 0
	if err := unix.IoctlSetTermios(int(in.Fd()), unix.TCSETS, &raw); err != nil {
		return fmt.Errorf("set up terminal: %w", err)
	}
	fmt.Fprint(out, enterScreen)
	err = a.draw(ctx, s, in, out)
	fmt.Fprint(out, leaveScreen)
	return errors.Join(err, unix.IoctlSetTermios(int(in.Fd()), unix.TCSETS, old))
}

var errNoTerminal = usageError{errors.New("top draws on a terminal: use --once, or status and counters")}

func (a *app) draw(ctx context.Context, s *sampler, in *os.File, out *os.File) error {
	quit, resized := make(chan struct{}), make(chan os.Signal, 1)
	go readKeys(in, quit)
	signal.Notify(resized, unix.SIGWINCH)
	defer signal.Stop(resized)
	tick := time.NewTicker(topPeriod)
	defer tick.Stop()
	now, err := s.sample()
	for {
		if err != nil {
			return err
		}
		width, height, sizeErr := size(out)
		if sizeErr != nil {
			return fmt.Errorf("size of terminal: %w", sizeErr)
		}
		show(out, frame(now, width, height))
		select {
		case <-ctx.Done():
			return nil
		case <-quit:
			return nil
		case <-resized: // the same, in another size
		case <-tick.C:
			now, err = s.sample()
		}
	}
}

// readKeys closes quit when q is typed, or nobody can type any more.
func readKeys(in io.Reader, quit chan<- struct{}) {
	defer close(quit)
	key := make([]byte, 1)
	for {
		n, err := in.Read(key)
		if err != nil || n == 1 && (key[0] == 'q' || key[0] == 'Q') {
			return
		}
	}
}

// show writes a screen in one piece, so that it does not flicker. The last line gets no line feed: it
// would scroll.
func show(out io.Writer, lines []string) {
	var b strings.Builder
	b.WriteString(home)
	for i, line := range lines {
		if i > 0 {
			b.WriteString("\r\n")
		}
		if heading(line) {
			line = bold + line + plain
		}
		b.WriteString(line + eraseLine)
	}
	b.WriteString(eraseBelow)
	_, _ = io.WriteString(out, b.String()) // a terminal that is gone ends readKeys
}

func size(f *os.File) (width, height int, err error) {
	w, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ)
	if err != nil {
		return 0, 0, err
	}
	if w.Col == 0 || w.Row == 0 { // a terminal that does not say
		return 80, 24, nil
	}
	return int(w.Col), int(w.Row), nil
}
