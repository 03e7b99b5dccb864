package main

import (
	"errors"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/latch-cni/latch/bpf"
	"github.com/latch-cni/latch/shared/view"
)

const ebpfHelp = `For those who know aws-eks-na-cli: the same words, answered for the objects of Latch. There, each pod has
programs and maps of its own; here there is one pair of programs a node, and each set of pods that no policy can
tell apart has a slot with inner maps. What you are after is mostly one command away:

  ebpf progs             the pinned programs            status has where they run
  ebpf maps              the pinned and inner maps      doctor has how full they are
  ebpf loaded-ebpfdata   programs and maps by pod       status POD
  ebpf dump-maps ID      what is in a map, for people   rules POD, flows, counters
  ebpf dump-cp-maps ID   the same: cluster policies are in the same maps

Unlike there, exit codes mean something: 3 if there is nothing of the kind, and -o json works.`

func (a *app) ebpf() *cobra.Command {
	c := &cobra.Command{Use: "ebpf", Short: "The words of aws-eks-na-cli: progs, maps, loaded-ebpfdata, dump-maps", Long: ebpfHelp,
		Example: `  latchctl ebpf loaded-ebpfdata
  latchctl ebpf dump-maps 42`,
		Args: cobra.ArbitraryArgs, // an unknown word is a usage error
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usageError{fmt.Errorf("unknown command %q%s", "ebpf "+args[0], meant(c, args[0]))}
			}
			return c.Help()
		}}
	sub := func(use, alias, short string, show func(*view.Node, []string) error, n int) {
		c.AddCommand(&cobra.Command{Use: use, Aliases: []string{alias}, Short: short, Args: args(0, n), RunE: func(_ *cobra.Command, args []string) error {
			if len(args) < n {
				return usageError{errors.New("which map? its ID, from latchctl ebpf maps")}
			}
			return a.node(func(node *view.Node) error { return show(node, args) })
		}})
	}
	sub("progs", "p", "The pinned programs", a.showPrograms, 0)
	sub("maps", "m", "The pinned maps, and the inner maps of slots", a.showMaps, 0)
	sub("loaded-ebpfdata", "e", "Programs and maps by pod", a.showLoaded, 0)
	sub("dump-maps ID", "d", "What is in a map", a.showMap, 1)
	sub("dump-cp-maps ID", "dcp", "What is in a map: cluster policies are in the same ones", a.showMap, 1)
	return c
}

func (a *app) showPrograms(n *view.Node, _ []string) error {
	progs, err := n.Programs()
	if err != nil {
		return err
	}
	return a.print(struct {
		Programs []view.Program `json:"programs"`
	}{progs}, func(w io.Writer) {
		fmt.Fprintln(w, "Programs currently loaded :")
		for _, p := range progs {
			fmt.Fprintf(w, "Type : %s ID : %d Associated maps count : %d Name : %s\n%s\n", p.Type, p.ID, len(p.Maps), p.Name, ruler)
		}
	})
}

var ruler = strings.Repeat("=", 86)

func (a *app) showMaps(n *view.Node, _ []string) error {
	maps, err := n.Maps()
	if err != nil {
		return err
	}
	return a.print(struct {
		Maps []view.Map `json:"maps"`
	}{maps}, func(w io.Writer) {
		fmt.Fprintln(w, "Maps currently loaded :")
		for _, m := range maps {
			fmt.Fprintf(w, "Type : %s ID : %d Name : %s%s\nKeysize %d Valuesize %d MaxEntries %d\n%s\n", m.Type, m.ID, m.Name, inSlot(m),
				m.KeySize, m.ValueSize, m.MaxEntries, ruler)
		}
	})
}

func inSlot(m view.Map) string {
	if m.Slot == nil {
		return ""
	}
	return fmt.Sprintf(" Slot : %d Pods : %s", *m.Slot, strings.Join(m.Pods, ","))
}

// loaded is what one program does for one pod.
type loaded struct {
	Pod        string     `json:"pod"`
	Identifier string     `json:"identifier"`
	Direction  string     `json:"direction"`
	Pin        string     `json:"pinPath"`
	Program    uint32     `json:"programID"`
	Maps       []view.Map `json:"maps"` // that hold its rules
}

func (a *app) showLoaded(n *view.Node, _ []string) error {
	progs, err := n.Programs()
	if err != nil {
		return err
	}
	maps, err := n.Maps()
	if err != nil {
		return err
	}
	pods, err := n.Pods()
	if err != nil {
		return err
	}
	all := []loaded{}
	for _, p := range pods {
		for _, in := range p.Interfaces {
			for _, prog := range progs {
				all = append(all, loadedOf(p, in, prog, maps))
			}
		}
	}
	return a.print(struct {
		Loaded []loaded `json:"loaded"`
	}{all}, func(w io.Writer) {
		for _, l := range all {
			fmt.Fprintf(w, "PinPath:  %s\nPod Identifier : %s  Pod : %s  Direction : %s\nProg ID:  %d\nAssociated Maps -> \n", l.Pin, l.Identifier, l.Pod, l.Direction, l.Program)
			for _, m := range l.Maps {
				fmt.Fprintf(w, "Map Name:  %s\nMap ID:  %d\n", m.Name, m.ID)
			}
			fmt.Fprintln(w, ruler)
		}
		if len(all) == 0 {
			fmt.Fprintln(w, "no pods")
		}
	})
}

func loadedOf(p view.Pod, in view.Interface, prog view.Program, maps []view.Map) loaded {
	l := loaded{Pod: p.Key(), Identifier: p.Identifier, Direction: "ingress", Pin: prog.Pin, Program: in.ToPod.Program, Maps: []view.Map{}}
	way := "_in"
	if prog.Side == "from_pod" {
		l.Direction, l.Program, way = "egress", in.FromPod.Program, "_out"
	}
	for _, m := range maps {
		if m.Slot != nil && *m.Slot == p.Slot && (strings.Contains(m.Name, way) || m.Name == "portsets") {
			l.Maps = append(l.Maps, m)
		}
	}
	return l
}

// showMap shows the content of a map as the command does that people are after.
func (a *app) showMap(n *view.Node, args []string) error {
	id, err := strconv.ParseUint(args[0], 10, 32)
	if err != nil {
		return usageError{fmt.Errorf("map ID %q: must be a number, from latchctl ebpf maps", args[0])}
	}
	maps, err := n.Maps()
	if err != nil {
		return err
	}
	i := slices.IndexFunc(maps, func(m view.Map) bool { return m.ID == uint32(id) })
	if i < 0 {
		return fmt.Errorf("%w: map %d is none of Latch's", view.ErrNotPinned, id)
	}
	m := maps[i]
	if a.output == "table" {
		fmt.Fprintf(a.out, "%s, map %d%s\n\n", m.Name, m.ID, inSlot(m))
	}
	switch {
	case m.Slot != nil:
		return a.showRulesOf(n, m)
	case strings.HasPrefix(m.Name, "flows"), strings.HasPrefix(m.Name, "spill"):
		return a.showFlowsOf(n, strings.HasSuffix(m.Name, "4"))
	case m.Name == "counters":
		return a.showCounters(n, nil)
	case m.Name == "pod_state", m.Name == "pod_state_hash":
		return a.showStatus(n, nil)
	case m.Name == "table_counts", m.Name == "table_ends":
		return a.showTables(n)
	}
	return a.showSlots(n)
}

func (a *app) showTables(n *view.Node) error {
	tables, err := n.Tables()
	if err != nil {
		return err
	}
	return a.print(struct {
		Tables []view.TableUse `json:"tables"`
	}{tables}, func(w io.Writer) {
		head := []string{"TABLE", "MADE", "AGAIN", "MOVED", "PUSHED OUT"}
		for _, e := range bpf.Ends() {
			head = append(head, strings.ToUpper(e.String()))
		}
		rows := [][]string{head}
		for _, t := range tables {
			row := []string{t.Table, fmt.Sprint(t.Made), fmt.Sprint(t.Replaced), fmt.Sprint(t.Moved), fmt.Sprint(t.Pushed)}
			for _, e := range bpf.Ends() {
				row = append(row, fmt.Sprint(t.Ended[e.String()]))
			}
			rows = append(rows, row)
		}
		columns(w, rows...)
	})
}

// showRulesOf shows the rules of an inner map: of its direction and family, or all whose ports may be in it.
func (a *app) showRulesOf(n *view.Node, m view.Map) error {
	p, rules, err := rulesOf(n, m.Pods[:1])
	if err != nil {
		return err
	}
	rules = slices.DeleteFunc(rules, func(r view.Rule) bool { return !holds(m.Name, r) })
	out := podRules{p.Key(), p.Slot, p.Generation, p.Guarded(), append([]view.Rule{}, rules...)}
	return a.print(out, func(w io.Writer) { out.table(w) })
}

// holds tells whether a map, by its name, is one that a rule is looked for in. What applies to any other
// address is in none.
func holds(name string, r view.Rule) bool {
	if name == "portsets" {
		return r.Prefix != ""
	}
	way := map[string]string{"ingress": "_in", "egress": "_out"}[r.Direction]
	p, err := netip.ParsePrefix(r.Prefix)
	if err != nil {
		return false
	}
	family := map[bool]string{true: "4", false: "6"}[p.Addr().Is4()]
	return strings.HasSuffix(name, way+family)
}

func (a *app) showFlowsOf(n *view.Node, four bool) error {
	flows, err := n.Flows(nil)
	if err != nil {
		return err
	}
	flows = slices.DeleteFunc(flows, func(f view.Flow) bool { return f.Remote.Addr().Is4() != four })
	return a.print(struct {
		Flows []view.Flow `json:"flows"`
	}{append([]view.Flow{}, flows...)}, func(w io.Writer) { flowTable(w, flows) })
}

// showSlots is for the maps that say little by themselves.
func (a *app) showSlots(n *view.Node) error {
	slots, err := n.Slots()
	if err != nil {
		return err
	}
	return a.print(struct {
		Slots []view.Slot `json:"slots"`
	}{slots}, func(w io.Writer) {
		rows := [][]string{{"SLOT", "GEN", "COMPLETE", "IDENTIFIER", "RULES HASH", "PODS"}}
		for _, s := range slots {
			rows = append(rows, []string{fmt.Sprint(s.Slot), fmt.Sprint(s.Generation), fmt.Sprint(s.Complete), s.Identifier, s.Hash[:16], strings.Join(s.Pods, ",")})
		}
		columns(w, rows...)
	})
}
