package main

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/latch-cni/latch/shared/view"
)

// podRules is the output of rules.
type podRules struct {
	Pod        string      `json:"pod"`
	Slot       uint32      `json:"slot"`
	Generation uint32      `json:"generation"`
	Guarded    bool        `json:"antiSpoof"` // on all of its interfaces: what it sends from other addresses is dropped, whatever the rules say
	Rules      []view.Rule `json:"rules"`
}

func (a *app) rules() *cobra.Command {
	return &cobra.Command{
		Use:   "rules NAMESPACE/POD",
		Short: "The rules that the kernel judges a pod by, with the policies they come from",
		Long: `Reads the pod's rules back from the kernel. They are flat: of the prefixes around an address the longest
decides alone, with its line for the port, or else its line "other". An address that no prefix covers
gets "any other". Tiers, priorities, unions and exceptions are worked into them already.`,
		Example: `  latchctl rules shop/db
  latchctl rules shop/db -o json | jq '.rules[] | select(.verdict == "allow")'`,
		Args:              args(1, 1),
		ValidArgsFunction: a.completePod,
		RunE: func(_ *cobra.Command, args []string) error {
			return a.node(func(n *view.Node) error { return a.showRules(n, args) })
		},
	}
}

// rulesOf returns the pod in args with its rules.
func rulesOf(n *view.Node, args []string) (view.Pod, []view.Rule, error) {
	found, err := pods(n, args)
	if err != nil {
		return view.Pod{}, nil, err
	}
	p := found[len(found)-1]
	if p.State == view.StateExpected {
		return p, nil, fmt.Errorf("%w: %s is expected, its rules are not in the kernel yet", view.ErrNoPod, p.Key())
	}
	rules, err := n.Rules(p)
	return p, rules, err
}

func (a *app) showRules(n *view.Node, args []string) error {
	p, rules, err := rulesOf(n, args)
	if err != nil {
		return err
	}
	out := podRules{p.Key(), p.Slot, p.Generation, p.Guarded(), rules}
	return a.print(out, func(w io.Writer) { out.table(w) })
}

// portsPerRow bounds the width of the table: an entry can have thousands of ports.
const portsPerRow = 8

func (r podRules) table(w io.Writer) {
	rows := [][]string{{"DIRECTION", "PEER", "PORTS", "VERDICT", "BY"}}
	for _, line := range r.Rules {
		for ports := range slices.Chunk(line.Ports, portsPerRow) {
			rows = append(rows, []string{line.Direction, peer(line.Prefix), strings.Join(ports, ","), line.Verdict, line.Decision.String()})
		}
	}
	columns(w, rows...)
	if r.Guarded {
		fmt.Fprintln(w, "\nWhat the pod sends from addresses that are not its own is dropped, whatever the rules say (antiSpoof).")
	}
}
