package main

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/latch-cni/latch/cmd/latchctl/doctor"
	"github.com/latch-cni/latch/shared/view"
)

func (a *app) doctor() *cobra.Command {
	o := doctor.Options{Proc: "/proc", Sys: "/sys"}
	c := &cobra.Command{
		Use:   "doctor",
		Short: "What is wrong with this node, and what to do about it",
		Long: `Looks at the kernel and its features, bpffs, pins, the CNI configuration that runtimes take, the plugin, other
agents on the pods' interfaces, latchd, clocks, limits and logs. What is not ok comes with a fix.

The exit code is 3 if anything fails; notes and warnings do not count.`,
		Example: `  latchctl doctor
  latchctl doctor -o json | jq '.findings[] | select(.level == "fail")'`,
		Args: args(0, 0),
		RunE: func(*cobra.Command, []string) error {
			o.Bpffs, o.StateDir = a.bpffs, a.stateDir
			return a.node(func(n *view.Node) error { return a.showFindings(n, o) })
		},
	}
	c.Flags().StringVar(&o.ConfDir, "cni-conf-dir", "", "folder of CNI configurations (default: what latchd recorded, or /etc/cni/net.d)")
	c.Flags().StringVar(&o.BinDir, "cni-bin-dir", "/opt/cni/bin", "folder of CNI plugins")
	return c
}

func (a *app) showFindings(n *view.Node, o doctor.Options) error {
	if o.ConfDir == "" {
		o.ConfDir = "/etc/cni/net.d"
		if s, err := n.Store().ReadSettings(); err == nil && s.ConfDir != "" {
			o.ConfDir = s.ConfDir
		}
	}
	found := doctor.Examine(n, o)
	err := a.print(struct {
		Findings []doctor.Finding `json:"findings"`
	}{found}, func(w io.Writer) { findingTable(w, found) })
	if err == nil && doctor.Unwell(found) {
		return status(exitUnhealthy)
	}
	return err
}

func findingTable(w io.Writer, found []doctor.Finding) {
	for _, f := range found {
		fmt.Fprintf(w, "%-4s  %-12s  %s\n", f.Level, f.Check, f.Message)
		if f.Fix != "" {
			fmt.Fprintf(w, "%20s-> %s\n", "", f.Fix)
		}
	}
}
