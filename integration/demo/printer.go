package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/latch-cni/latch/integration/probe"
)

// printer writes the story, and counts what is not as it should be.
type printer struct {
	to              io.Writer
	colours         bool // at a terminal
	chapters, wrong int
}

func newPrinter(f *os.File) *printer {
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return &printer{to: f, colours: err == nil && os.Getenv("NO_COLOR") == ""}
}

const (
	bold  = "1"
	green = "32"
	red   = "31"
	faint = "2"
)

func (p *printer) paint(colour, s string) string {
	if !p.colours {
		return s
	}
	return "\x1b[" + colour + "m" + s + "\x1b[0m"
}

func (p *printer) say(format string, args ...any) { fmt.Fprintf(p.to, "   "+format+"\n", args...) }

// chapter begins a step of the story.
func (p *printer) chapter(format string, args ...any) {
	p.chapters++
	fmt.Fprintf(p.to, "\n%s\n", p.paint(bold, fmt.Sprintf("%d. %s", p.chapters, fmt.Sprintf(format, args...))))
}

// fact is a statement that has been checked.
func (p *printer) fact(ok bool, format string, args ...any) {
	mark := p.paint(green, "ok")
	if !ok {
		mark = p.paint(red, "WRONG")
		p.wrong++
	}
	p.say("%s  %s", mark, fmt.Sprintf(format, args...))
}

// table shows who reaches whom. A star marks what changed since the last one; what is not as expected
// is counted, and named.
func (p *printer) table(senders []*probe.Endpoint, got, want, last table) {
	line := fmt.Sprintf("%-9s", "from \\ to")
	for _, r := range cast {
		line += fmt.Sprintf("  %-10s", fmt.Sprintf("%s:%d", r.name, r.port))
	}
	fmt.Fprintln(p.to)
	p.say("%s", p.paint(faint, strings.TrimRight(line, " ")))
	for i, row := range got {
		line := fmt.Sprintf("%-9s", senders[i].Name)
		for j := range row {
			line += "  " + p.cell(row[j], want[i][j], last != nil && last[i][j] != row[j])
		}
		p.say("%s", strings.TrimRight(line, " "))
	}
}

func (p *printer) cell(got, want byte, changed bool) string {
	word := map[byte]string{'y': "yes", 'n': "no", '.': "."}[got]
	colour := map[byte]string{'y': green, 'n': red, '.': faint}[got]
	if word == "" {
		word = "half"
	}
	text := word
	if changed {
		text += " *"
	}
	if got != want {
		text += " WRONG"
		p.wrong++
	}
	pad := strings.Repeat(" ", max(0, 10-len(text)))
	return p.paint(colour, text) + pad
}

// command shows a command line and its output.
func (p *printer) command(name string, args []string, out string) {
	fmt.Fprintln(p.to)
	p.say("%s", p.paint(bold, "$ "+name+" "+strings.Join(args, " ")))
	for line := range strings.Lines(strings.TrimRight(out, "\n") + "\n") {
		fmt.Fprintln(p.to, strings.TrimRight("   "+line, " \n"))
	}
}

// verdict is the last line, and the exit code.
func (p *printer) verdict(took time.Duration) int {
	if p.wrong > 0 {
		fmt.Fprintf(p.to, "\n%s\n", p.paint(red, fmt.Sprintf("%d of the answers above are WRONG (%.1f s)", p.wrong, took.Seconds())))
		return 1
	}
	fmt.Fprintf(p.to, "\n%s\n", p.paint(green, fmt.Sprintf("Every answer was as it should be, in %.1f s.", took.Seconds())))
	return 0
}

func exitCode(err error) int {
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return exit.ExitCode()
	}
	if err != nil {
		return -1
	}
	return 0
}
