package main

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/latch-cni/latch/shared/view"
)

// nodeStatus is the output of status.
type nodeStatus struct {
	Node view.Status `json:"node"`
	Pods []view.Pod  `json:"pods"`
}

func (a *app) status() *cobra.Command {
	return &cobra.Command{
		Use:   "status [NAMESPACE/POD]",
		Short: "Which policies are in force, for all pods or one in detail",
		Long: `Shows for every pod whether its policy is in force in the kernel, and which one.

State is enforced; default-allow or default-deny when nothing is known about the pod; prepared when
its rules are in the kernel and it has no interface yet; expected when they are not; not-in-force when
the kernel does not do what is recorded; not-adopted when the pod was there before Latch and could not be
taken over, so that it runs without policy. Of the last two the reasons follow, and the exit code is 3, as it
is when a pinned object is missing.

A policy is pending when what it allows is not known, and settling when it has changed and may not be complete:
running pods wait for the rest of it, for half a second after its last change and 5 seconds at most. While rules
of a pending policy are in force since before latchd started again, all others settle with it.

A direction is isolated when a policy isolates the pod there; else it is open, or closed in strict mode.

The container, the index of the interface and the identifier are in the detail of one pod, and in -o json.`,
		Example: `  latchctl status
  latchctl status shop/db
  latchctl status -o json | jq '.pods[] | select(.healthy | not)'`,
		Args:              args(0, 1),
		ValidArgsFunction: a.completePod,
		RunE: func(_ *cobra.Command, args []string) error {
			return a.node(func(n *view.Node) error { return a.showStatus(n, args) })
		},
	}
}

func (a *app) showStatus(n *view.Node, args []string) error {
	node, unreadable := n.Status() // all but what latchd says also with an error
	found, err := pods(n, args)
	if len(args) == 0 {
		found, err = n.Pods() // the readable ones also with an error
	}
	if err = errors.Join(unreadable, err); err != nil && len(found) == 0 {
		return err
	}
	if found == nil {
		found = []view.Pod{}
	}
	s := nodeStatus{node, found}
	show := func(w io.Writer) { s.table(w) }
	if len(args) > 0 {
		show = func(w io.Writer) { details(w, found) }
	}
	if err := errors.Join(err, a.print(s, show)); err != nil {
		return err
	}
	if len(node.Missing) > 0 || slices.ContainsFunc(found, func(p view.Pod) bool { return !p.Healthy }) {
		return status(exitUnhealthy)
	}
	return nil
}

func (s nodeStatus) table(w io.Writer) {
	columns(w,
		[]string{"node", nodeLine(s.Node)},
		[]string{"kernel", kernelLine(s.Node)},
		[]string{"latchd", watcherLine(s.Node.Watcher)})
	if len(s.Node.Watcher.Problems) > 0 {
		fmt.Fprintln(w, "\nproblems that latchd reports:")
	}
	for _, p := range s.Node.Watcher.Problems {
		fmt.Fprintf(w, "  %s: %s\n", strings.TrimSpace(p.Object+" "+p.Field), p.Message)
	}
	if len(s.Pods) == 0 {
		fmt.Fprintln(w, "\nno pods")
		return
	}
	rows := [][]string{{"POD", "INTERFACE", "STATE", "INGRESS", "EGRESS", "POLICIES", "SLOT", "GEN", "SINCE"}}
	for _, p := range s.Pods {
		rows = append(rows, podRow(p))
	}
	fmt.Fprintln(w)
	columns(w, rows...)
	problems(w, s.Pods)
}

func nodeLine(s view.Status) string {
	if s.Node == "" {
		return "unknown"
	}
	return s.Node + ", " + s.Mode + " mode"
}

func kernelLine(s view.Status) string {
	line := fmt.Sprintf("%s and %s pinned, layout v%d", plural(s.Progs, "program"), plural(s.Maps, "map"), s.Layout)
	if s.Progs+s.Maps == 0 {
		line = "nothing pinned below " + s.Pins
	} else if len(s.Missing) > 0 {
		line += ", missing: " + strings.Join(s.Missing, ", ")
	}
	for _, v := range s.Layouts {
		if v != s.Layout {
			line += fmt.Sprintf("; layout v%d of another build is there, too", v)
		}
	}
	return line
}

func watcherLine(w view.Watcher) string {
	switch {
	case w.Ready:
		return "ready"
	case w.Spoke == nil:
		return w.Message
	case w.Stopped:
		return fmt.Sprintf("not running, last word %s ago: %s", age(w.Spoke), w.Message)
	case w.Running:
		return "not ready: " + w.Message
	}
	return fmt.Sprintf("silent for %s: %s", age(w.Spoke), w.Message)
}
