package main

import (
	"errors"
	"fmt"
	"io"
	"net/netip"
	"strings"

	"github.com/spf13/cobra"

	"github.com/latch-cni/latch/shared/view"
)

func (a *app) explain() *cobra.Command {
	var q view.Query
	var port string
	c := &cobra.Command{
		Use:   "explain --from X --to Y --port PORT/PROTOCOL",
		Short: "Would a new flow be allowed, and by which policy",
		Long: `Judges a new flow by the rules that the kernel holds now: the egress rules of its source and the ingress
rules of its destination. X and Y are NAMESPACE/POD or an address. An end that is not on this node is
judged by its own node. Packets of live flows are not asked about: see flows.

What a pod sends to its own node passes if it is for the node itself: for TCP and UDP, if a socket of the node takes
it at this moment. Else it is a node port or nobody's, and policy decides.

Of the prefixes around an address the longest decides alone; what the others would say is shown as considered.
Where what latchd means to have in force differs from the kernel, or may differ, a warning says so.

The exit code is 0 if the flow is allowed, as far as it is judged here, 4 if it is denied, 3 if neither end is a pod of
this node.`,
		Example: `  latchctl explain --from shop/web --to shop/db --port 5432/TCP
  latchctl explain --from 203.0.113.9 --to shop/web --port 443
  latchctl explain --from shop/web --to fd00::53 --port 53/UDP --family 6`,
		Args: args(0, 0),
		RunE: func(*cobra.Command, []string) error {
			var err error
			if q.From == "" || q.To == "" || port == "" {
				return usageError{errors.New("--from, --to and --port are needed")}
			}
			if err := errors.Join(checkEnd("--from", q.From), checkEnd("--to", q.To)); err != nil {
				return usageError{err}
			}
			if q.Port, err = view.ParsePort(port); err != nil {
				return usageError{fmt.Errorf("--port: %w", err)}
			}
			if q.Family != 0 && q.Family != 4 && q.Family != 6 {
				return usageError{fmt.Errorf("--family %d: use 4 or 6", q.Family)}
			}
			return a.node(func(n *view.Node) error { return a.showExplanation(n, q) })
		},
	}
	f := c.Flags()
	f.StringVar(&q.From, "from", "", "who opens the flow: NAMESPACE/POD or an address")
	f.StringVar(&q.To, "to", "", "to whom: NAMESPACE/POD or an address")
	f.StringVar(&port, "port", "", "destination: 8080/TCP, 53/UDP, ICMP; TCP if only a number")
	f.IntVar(&q.Family, "family", 0, "4 or 6, when both ends have both (default 4)")
	for _, name := range []string{"from", "to"} {
		_ = c.RegisterFlagCompletionFunc(name, func(c *cobra.Command, _ []string, s string) ([]string, cobra.ShellCompDirective) {
			return a.completePod(c, nil, s)
		})
	}
	return c
}

func checkEnd(flag, name string) error {
	if _, err := netip.ParseAddr(name); err != nil && !strings.Contains(name, "/") {
		return fmt.Errorf("%s %q: neither NAMESPACE/POD nor an IP address", flag, name)
	}
	return nil
}

func (a *app) showExplanation(n *view.Node, q view.Query) error {
	x, err := n.Explain(q)
	if err != nil {
		return err
	}
	if err := a.print(x, func(w io.Writer) { explanation(w, x) }); err != nil {
		return err
	}
	switch x.Verdict {
	case "allow":
		return nil
	case "deny":
		return status(exitDenied)
	}
	return status(exitUnhealthy)
}

func explanation(w io.Writer, x view.Explanation) {
	fmt.Fprintf(w, "%s -> %s %s: %s\n\n", x.From, x.To, x.Port, answer(x))
	columns(w,
		[]string{"SIDE", "OF", "VERDICT", "TIER", "BY", "ENTRY"},
		judgedRow("egress", x.From, x.Egress),
		judgedRow("ingress", x.To, x.Ingress))
	consideredTable(w, "egress", x.Egress)
	consideredTable(w, "ingress", x.Ingress)
	if x.Egress.Guarded {
		fmt.Fprintf(w, "\negress, %s: what it sends from addresses that are not its own is dropped (antiSpoof)\n", x.From.Pod)
	}
	for _, warning := range x.Warnings {
		fmt.Fprintf(w, "\nwarning: %s\n", warning)
	}
}

func answer(x view.Explanation) string {
	switch {
	case x.Verdict == "deny":
		return "denied"
	case x.Verdict != "allow":
		return "unknown, neither end is a pod of this node"
	case x.Elsewhere:
		return "allowed here; the other side is judged elsewhere"
	}
	return "allowed"
}

// consideredTable shows on what a verdict depends, and what would decide without the entry that does.
func consideredTable(w io.Writer, side string, j view.Judged) {
	if j.Note != "" {
		fmt.Fprintf(w, "\n%s: %s\n", side, j.Note)
	}
	if len(j.Considered) > 0 {
		fmt.Fprintf(w, "\n%s, considered too:\n", side)
		var rows [][]string
		for _, c := range j.Considered {
			rows = append(rows, []string{"  " + peer(c.Prefix), c.Verdict, c.Tier, c.Decision.String()})
		}
		columns(w, rows...)
	}
	if len(j.NoMatch) > 0 {
		silent := "no rule for this" // why it is denied
		if j.Verdict == "allow" {
			silent = "without a part in this"
		}
		fmt.Fprintf(w, "\n%s, %s: %s\n", side, silent, policyNames(j.NoMatch))
	}
}

func judgedRow(side string, of view.Endpoint, j view.Judged) []string {
	name := of.Pod
	if name == "" {
		name = of.Address.String()
	}
	row := []string{side, name, j.Verdict}
	if j.Reason == view.ReasonPolicy {
		return append(row, j.Tier, j.Decision.String(), strings.TrimSpace(peer(j.Prefix)+" "+fewPorts(j.Ports)))
	}
	if j.Reason == view.ReasonRemote && of.Node {
		return append(row, "", "this node itself, which no policy judges", "")
	}
	return append(row, "", reasons[j.Reason], "")
}

func fewPorts(ports []string) string {
	if more := len(ports) - portsPerRow; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(ports[:portsPerRow], ","), more)
	}
	return strings.Join(ports, ",")
}

// reasons are those that are not a rule.
var reasons = map[string]string{
	view.ReasonNode:      "the other end is this node itself",
	view.ReasonSelf:      "it does not leave the pod",
	view.ReasonRemote:    "not on this node",
	view.ReasonUnbound:   "bound to no rules: everything is dropped",
	view.ReasonNotLoaded: "its rules are not complete: everything is dropped",
	view.ReasonOpen:      "our program does not run: nothing is judged",
}
