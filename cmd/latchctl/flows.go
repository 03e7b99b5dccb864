package main

import (
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/latch-cni/latch/shared/view"
)

func (a *app) flows() *cobra.Command {
	return &cobra.Command{
		Use:   "flows [NAMESPACE/POD]",
		Short: "Live flows, who opened them, and what admitted them",
		Long: `Lists the live entries of the connection table. Each is a flow in both directions, seen from the pod. When
its generation is not the one in force, policy has changed since: the flow's next packet has it judged
again, in the direction in which it was opened. Idle times are exact to a second.`,
		Example: `  latchctl flows shop/db
  latchctl flows -o json | jq '[.flows[] | select(.current | not)] | length'`,
		Args:              args(0, 1),
		ValidArgsFunction: a.completePod,
		RunE: func(_ *cobra.Command, args []string) error {
			return a.node(func(n *view.Node) error { return a.showFlows(n, args) })
		},
	}
}

func (a *app) showFlows(n *view.Node, args []string) error {
	found, err := pods(n, args)
	if err != nil {
		return err
	}
	flows, err := n.Flows(found)
	if err != nil {
		return err
	}
	if flows == nil {
		flows = []view.Flow{}
	}
	return a.print(struct {
		Flows []view.Flow `json:"flows"`
	}{flows}, func(w io.Writer) { flowTable(w, flows) })
}

func flowTable(w io.Writer, flows []view.Flow) {
	if len(flows) == 0 {
		fmt.Fprintln(w, "no live flows")
		return
	}
	rows := [][]string{{"POD", "OPENED", "PROTOCOL", "PORT", "REMOTE", "STATE", "IDLE", "GEN", "ADMITTED BY"}}
	for _, f := range flows {
		rows = append(rows, []string{f.Pod, f.Opened, f.Protocol, fmt.Sprint(f.LocalPort), f.Remote.String(), f.State,
			short(time.Duration(f.Idle)), generation(f), admitted(f)})
	}
	columns(w, rows...)
}

func generation(f view.Flow) string {
	if f.Current {
		return fmt.Sprint(f.Generation)
	}
	return fmt.Sprintf("%d (old)", f.Generation)
}

func admitted(f view.Flow) string {
	switch {
	case f.Cut:
		return f.Admitted.String() + ", denied now"
	case f.Exempt:
		return "node or own traffic"
	}
	return f.Admitted.String()
}
