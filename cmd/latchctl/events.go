package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"github.com/latch-cni/latch/shared/view"
)

// eventOptions are the flags of events.
type eventOptions struct {
	follow  bool
	file    string
	pod     string
	since   time.Duration
	last    int
	filter  view.EventFilter
	lastSet bool
}

func (a *app) events() *cobra.Command {
	var o eventOptions
	c := &cobra.Command{
		Use:   "events [-f] [NAMESPACE/POD]",
		Short: "Verdicts as they happen: what was denied, by which policy",
		Long: `Reads the flow log of latchd, and goes on with -f. Denied packets are in it, and admitted flows when latchd
was told to log them (--flow-log-allows). The file is read, and the older ones that it was rotated into; not
the kernel's ring buffer: a second reader of that would take events away from the log.

Of a pod that is not on this node, and was not when the log was written, the exit code is 3; with -f it is waited
for. When the flow log is off the exit code is 3, too, and the message says how to turn it on. When latchd logs to its
standard output, or the log was copied from another node, give it with --file.`,
		Example: `  latchctl events -f
  latchctl events -f shop/db --direction ingress
  latchctl events --policy shop/db --since 10m -o json | jq .src
  kubectl logs -n kube-system ds/latch -f | latchctl events --file -`,
		Args:              args(0, 1),
		ValidArgsFunction: a.completePod,
		RunE: func(c *cobra.Command, args []string) error {
			o.lastSet = c.Flags().Changed("last")
			if len(args) > 0 {
				o.pod = args[0]
			}
			if err := o.check(); err != nil {
				return err
			}
			ctx, stop := signal.NotifyContext(c.Context(), os.Interrupt, syscall.SIGTERM)
			defer stop()
			return a.node(func(n *view.Node) error { return a.showEvents(ctx, n, o) })
		},
	}
	f := c.Flags()
	f.BoolVarP(&o.follow, "follow", "f", false, "go on with what comes")
	f.StringVar(&o.file, "file", "", "read this flow log, - for standard input; default the one that latchd writes")
	f.StringVar(&o.pod, "pod", "", "of this pod only: NAMESPACE/POD, or NAMESPACE/ for all of a namespace")
	f.StringVar(&o.filter.Direction, "direction", "", "ingress or egress only, in the pod's view")
	f.StringVar(&o.filter.Verdict, "verdict", "", "deny or allow only")
	f.StringVar(&o.filter.Policy, "policy", "", "decided by this policy only: NAMESPACE/NAME or NAME")
	f.DurationVar(&o.since, "since", 0, "not older than this")
	f.IntVarP(&o.last, "last", "n", 10, "so many of what is there already; without -f all, unless given")
	_ = c.RegisterFlagCompletionFunc("pod", func(c *cobra.Command, _ []string, s string) ([]string, cobra.ShellCompDirective) {
		return a.completePod(c, nil, s)
	})
	_ = c.RegisterFlagCompletionFunc("direction", cobra.FixedCompletions([]string{"ingress", "egress"}, cobra.ShellCompDirectiveNoFileComp))
	_ = c.RegisterFlagCompletionFunc("verdict", cobra.FixedCompletions([]string{"deny", "allow"}, cobra.ShellCompDirectiveNoFileComp))
	return c
}

func (o *eventOptions) check() error {
	f := &o.filter
	if o.pod != "" {
		var ok bool
		if f.Namespace, f.Pod, ok = strings.Cut(o.pod, "/"); !ok || f.Namespace == "" || strings.Contains(f.Pod, "/") {
			return usageError{fmt.Errorf("%q is not NAMESPACE/POD", o.pod)}
		}
	}
	if f.Direction != "" && f.Direction != "ingress" && f.Direction != "egress" {
		return usageError{fmt.Errorf("--direction %q: use ingress or egress", f.Direction)}
	}
	if f.Verdict != "" && f.Verdict != "deny" && f.Verdict != "allow" {
		return usageError{fmt.Errorf("--verdict %q: use deny or allow", f.Verdict)}
	}
	if o.last < 0 || o.since < 0 {
		return usageError{errors.New("--last and --since: must not be negative")}
	}
	if o.since > 0 {
		f.Since = time.Now().Add(-o.since)
	}
	return nil
}

func (a *app) showEvents(ctx context.Context, n *view.Node, o eventOptions) error {
	p := &eventPrinter{app: a, filter: o.filter, owner: n.Owner()}
	if o.file == "-" {
		return view.ReadLines(a.in, p.line)
	}
	path := o.file
	if path == "" {
		var err error
		if path, err = n.FlowLog(); err != nil {
			return err
		}
	} else if _, err := os.Stat(path); err != nil {
		return fmt.Errorf("read flow log: %w", err)
	}
	f, err := view.Follow(path)
	if err != nil {
		return fmt.Errorf("read flow log: %w", err)
	}
	defer func() { _ = f.Close() }()
	older, err := f.Older(o.filter.Since)
	if err != nil {
		return fmt.Errorf("read flow log: %w", err)
	}
	if o.follow || o.lastSet {
		err = p.lastOf(o.last, f, older)
	} else {
		err = p.all(f, older)
	}
	if err != nil {
		return err
	}
	unknown := p.unknown(n, o)
	if !o.follow {
		return unknown
	}
	if unknown != nil {
		fmt.Fprintf(a.err, "%v; waiting for it\n", unknown)
	}
	return f.Run(ctx, p.line)
}

// unknown is an error if a pod was asked for of which the log of this node says nothing and that is not here.
func (p *eventPrinter) unknown(n *view.Node, o eventOptions) error {
	if o.file != "" || p.filter.Pod == "" || p.matched {
		return nil
	}
	_, err := n.Pod(p.filter.Namespace, p.filter.Pod)
	return err
}

// eventPrinter prints what the filter chooses of lines.
type eventPrinter struct {
	*app
	filter view.EventFilter
	owner  func(netip.Addr) (namespace, pod string)
	begun  bool

	matched bool // an event was chosen
}

func (p *eventPrinter) line(raw []byte) error {
	if e, ok := p.chosen(raw); ok {
		return p.print(e)
	}
	return nil
}

// chosen reads a line. Between the lines of standard output may be others.
func (p *eventPrinter) chosen(raw []byte) (view.Event, bool) {
	e, err := view.ParseEvent(raw, p.owner)
	yes := err == nil && p.filter.Match(e)
	p.matched = p.matched || yes && e.Suppressed == nil
	return e, yes
}

// all prints what is there already.
func (p *eventPrinter) all(f *view.Follower, older []string) error {
	for _, path := range older {
		if err := view.ReadFile(path, p.line); err != nil {
			return fmt.Errorf("read flow log: %w", err)
		}
	}
	return f.More(p.line)
}

// lastOf prints the last of what is there already. Older files are read only if the newer have not as many.
func (p *eventPrinter) lastOf(n int, f *view.Follower, older []string) error {
	held, err := p.held(n, f.More)
	for i := len(older) - 1; i >= 0 && err == nil && len(held) < n; i-- {
		var before []view.Event
		before, err = p.held(n-len(held), func(line func([]byte) error) error { return view.ReadFile(older[i], line) })
		held = append(before, held...)
	}
	for _, e := range held {
		err = errors.Join(err, p.print(e))
	}
	return err
}

// held returns the last events of what read passes on.
func (p *eventPrinter) held(n int, read func(line func([]byte) error) error) ([]view.Event, error) {
	var held []view.Event
	err := read(func(raw []byte) error {
		if e, ok := p.chosen(raw); ok {
			held = append(held, e)
			held = held[max(0, len(held)-n):]
		}
		return nil
	})
	return held, err
}

func (p *eventPrinter) print(e view.Event) error {
	switch p.output {
	case "json":
		if e.Suppressed == nil {
			enc := json.NewEncoder(p.out)
			enc.SetEscapeHTML(false)
			return enc.Encode(e)
		}
	case "yaml":
		if e.Suppressed == nil {
			raw, err := yaml.Marshal(e)
			if err == nil {
				_, err = fmt.Fprintf(p.out, "---\n%s", raw)
			}
			return err
		}
	}
	if e.Suppressed != nil {
		for cause, n := range e.Suppressed {
			fmt.Fprintf(p.err, "%s: %d lines were left out: %s\n", e.Time.Local().Format(time.TimeOnly), n, cause)
		}
		return nil
	}
	if !p.begun {
		p.begun = true
		if _, err := fmt.Fprintf(p.out, eventRow, "TIME", "VERDICT", "DIRECTION", "POD", "PROTO", "FROM -> TO", "BY"); err != nil {
			return err
		}
	}
	_, err := fmt.Fprintf(p.out, eventRow, e.Time.Local().Format("15:04:05.000"), e.Verdict, e.Direction, dash(e.Key()), dash(e.Protocol),
		e.From()+" -> "+e.To(), e.By())
	return err
}

// eventRow has fixed columns: rows come one by one.
const eventRow = "%-12s  %-7s  %-9s  %-28s  %-6s  %-44s  %s\n"

func dash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}
