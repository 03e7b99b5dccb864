package main

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/latch-cni/latch/shared/view"
)

func (a *app) check() *cobra.Command {
	return &cobra.Command{
		Use:   "check",
		Short: "Compare everything that is recorded with the kernel",
		Long: `Asks the kernel about every attachment: are both programs attached, is nothing in front of them, is each
interface bound to its rules, are the rules complete, and are they those that are recorded, for the labels
that the pod has by its own record. The rules are read back and compared with their hash. What the kernel has and no record knows is reported as well.

Nothing is changed: latchd repairs what it can by itself, while it runs; whether it does is told, and changes
nothing of what is in force. The exit code is 3 if anything is wrong, and on a node where Latch does not run.`,
		Example: `  latchctl check || latchctl check -o json > /tmp/latch-findings.json`,
		Args:    args(0, 0),
		RunE: func(*cobra.Command, []string) error {
			return a.node(a.showCheck)
		},
	}
}

func (a *app) showCheck(n *view.Node) error {
	r, err := n.Audit()
	if err != nil {
		return err
	}
	err = a.print(r, func(w io.Writer) {
		for _, p := range r.Problems {
			fmt.Fprintf(w, "%-8s %s\n", p.Kind, p)
		}
		fmt.Fprintf(w, "%s, %s and %s checked: %s\n", plural(r.Attachments, "attachment"), plural(r.Interfaces, "interface"),
			plural(r.Slots, "rule set"), verdict(len(r.Problems)))
		fmt.Fprintf(w, "latchd: %s\n", watcherLine(r.Watcher))
	})
	if err == nil && len(r.Problems) > 0 {
		return status(exitUnhealthy)
	}
	return err
}

func verdict(problems int) string {
	if problems == 0 {
		return "all in force"
	}
	return plural(problems, "problem")
}
