package main

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/latch-cni/latch/shared/view"
)

// podRow is a pod's line in the table of status.
func podRow(p view.Pod) []string {
	var names []string
	for _, in := range p.Interfaces {
		names = append(names, in.Name)
	}
	row := []string{p.Key(), strings.Join(names, ","), string(p.State)}
	if p.State == view.StateExpected {
		return append(row, "", "", "", "", "", "")
	}
	if p.State == view.StateNotAdopted {
		return append(row, "open", "open", "", "", "", "")
	}
	policies := policyNames(p.Policies)
	if len(p.Pending) > 0 {
		policies += " (pending: " + policyNames(p.Pending) + ")"
	}
	if len(p.Settling) > 0 {
		policies += " (settling: " + policyNames(p.Settling) + ")"
	}
	return append(row, p.Ingress.String(), p.Egress.String(), policies, fmt.Sprint(p.Slot), fmt.Sprint(p.Generation), age(p.Since))
}

// problems lists what is not in force, and why.
func problems(w io.Writer, pods []view.Pod) {
	for _, p := range pods {
		if p.Healthy {
			continue
		}
		fmt.Fprintf(w, "\n%s is not in force:\n", p.Key())
		for _, problem := range p.Problems {
			fmt.Fprintf(w, "  %s\n", problem)
		}
	}
}

// details shows everything about the attachments of one pod.
func details(w io.Writer, pods []view.Pod) {
	for i, p := range pods {
		if i > 0 {
			fmt.Fprintln(w)
		}
		rows := [][]string{{"pod", p.Key()}, {"uid", p.UID}, {"state", stateLine(p)}}
		if p.ContainerID != "" {
			rows = append(rows, []string{"container", p.ContainerID + " " + p.IfName})
		}
		rows = append(rows,
			[]string{"identifier", p.Identifier},
			[]string{"rules", fmt.Sprintf("slot %d, generation %d", p.Slot, p.Generation)},
			[]string{"policies", policyNames(p.Policies)})
		if len(p.Pending) > 0 {
			rows = append(rows, []string{"pending", policyNames(p.Pending)})
		}
		if len(p.Settling) > 0 {
			rows = append(rows, []string{"settling", policyNames(p.Settling)})
		}
		ingress, egress := sideLine(p.Ingress), sideLine(p.Egress)
		if p.State == view.StateNotAdopted {
			ingress, egress = "open: nothing of this is in force", "open: nothing of this is in force"
		}
		rows = append(rows, []string{"ingress", ingress}, []string{"egress", egress})
		for _, in := range p.Interfaces {
			rows = append(rows,
				[]string{"interface", interfaceLine(in)},
				[]string{"  to_pod", hookLine(in.ToPod)},
				[]string{"  from_pod", hookLine(in.FromPod)})
		}
		columns(w, rows...)
	}
	problems(w, pods)
}

func stateLine(p view.Pod) string {
	if p.Since == nil {
		return string(p.State)
	}
	return fmt.Sprintf("%s, rules since %s (%s)", p.State, p.Since.Local().Format(time.RFC3339), age(p.Since))
}

func sideLine(s view.Side) string {
	return fmt.Sprintf("%s: what no rule names is %s by %s", s, past(s.Default.Verdict), s.Default)
}

func past(verdict string) string {
	if verdict == "allow" {
		return "allowed"
	}
	return "denied"
}

func interfaceLine(in view.Interface) string {
	line := fmt.Sprintf("%s, index %d, pod id %d", in.Name, in.Ifindex, in.PodID)
	if in.Addr4.IsValid() {
		line += ", " + in.Addr4.String()
	}
	if in.Addr6.IsValid() {
		line += ", " + in.Addr6.String()
	}
	if in.Guarded {
		line += ", sends from no other address (antiSpoof)"
	}
	if in.Slot != nil {
		return line + fmt.Sprintf(", bound to slot %d", *in.Slot)
	}
	return line + ", not bound"
}

func hookLine(h view.Hook) string {
	switch {
	case !h.Attached:
		return "not attached"
	case !h.Effective:
		return fmt.Sprintf("program %d by %s, behind %s", h.Program, h.Mode, strings.Join(h.Ahead, ", "))
	}
	return fmt.Sprintf("program %d by %s, first in line", h.Program, h.Mode)
}
