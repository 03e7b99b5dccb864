package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/latch-cni/latch/shared/view"
)

// counts is the output of counters.
type counts struct {
	Counters   []view.Counter `json:"counters"`
	LostEvents uint64         `json:"lostEvents"` // verdict events that found no room
}

func (a *app) counters() *cobra.Command {
	return &cobra.Command{
		Use:   "counters [NAMESPACE/POD]",
		Short: "How many flows were admitted and packets dropped, and why",
		Long: `Shows the kernel's counters: new flows and drops, by direction and reason. Packets of known flows are not
counted. Pods that no policy can tell apart share rules, and so their counters. They begin anew when
the rules move to another slot.`,
		Example: `  latchctl counters
  latchctl counters shop/db -o json | jq '[.counters[] | select(.verdict == "deny").packets] | add'`,
		Args:              args(0, 1),
		ValidArgsFunction: a.completePod,
		RunE: func(_ *cobra.Command, args []string) error {
			return a.node(func(n *view.Node) error { return a.showCounters(n, args) })
		},
	}
}

func (a *app) showCounters(n *view.Node, args []string) error {
	found, err := pods(n, args)
	if err != nil {
		return err
	}
	c := counts{Counters: []view.Counter{}}
	counters, lost, err := n.Counters(found)
	if err != nil {
		return err
	}
	c.Counters, c.LostEvents = append(c.Counters, counters...), lost
	return a.print(c, func(w io.Writer) { c.table(w) })
}

func (c counts) table(w io.Writer) {
	rows := [][]string{{"POD", "SLOT", "DIRECTION", "VERDICT", "REASON", "PACKETS"}}
	for _, x := range c.Counters {
		slot := ""
		if x.Slot != nil {
			slot = fmt.Sprint(*x.Slot)
		}
		rows = append(rows, []string{strings.Join(x.Pods, ","), slot, x.Direction, x.Verdict, x.Reason, fmt.Sprint(x.Packets)})
	}
	columns(w, rows...)
	if c.LostEvents > 0 {
		fmt.Fprintf(w, "\n%d events were lost: nobody read them in time\n", c.LostEvents)
	}
}
