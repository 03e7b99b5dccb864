package doctor

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/latch-cni/latch/shared/attach"
	"github.com/latch-cni/latch/shared/foreign"
	"github.com/latch-cni/latch/shared/state"
	"github.com/latch-cni/latch/shared/view"
)

func (x *exam) pins() {
	s, err := x.node.Status()
	switch {
	case err != nil:
		x.add(Fail, "pins", "", "%v", err)
	case s.Maps+s.Progs == 0:
		x.add(Fail, "pins", "start latchd", "nothing is pinned below %s", s.Pins)
	case len(s.Missing) > 0:
		x.add(Fail, "pins", "restart latchd; if they stay away, latchctl cleanup and start again", "missing: %s", strings.Join(s.Missing, ", "))
	default:
		x.add(OK, "pins", "", "%d programs, %d maps, layout v%d", s.Progs, s.Maps, s.Layout)
	}
	for _, v := range s.Layouts {
		if v > s.Layout {
			x.add(Warn, "pins", "use the latchctl of the newer build", "layout v%d of a newer build is there", v)
		}
	}
}

func (x *exam) otherAgents() {
	const check = "other agents"
	agent, err := foreign.Find(x.Bpffs)
	switch {
	case err != nil:
		x.add(Warn, check, "", "%v", err)
	case agent.Active():
		x.add(Fail, check, "switch it off and start latchd with --take-over", "%v", agent)
	case agent.Pins != "":
		x.add(Note, check, "latchd --take-over removes them", "pins of %s are left in %s", foreign.AgentName, agent.Pins)
	}
	pods, _ := x.node.Pods() // told by pods
	shared := map[string]int{}
	for _, p := range pods {
		for _, in := range p.Interfaces {
			for _, side := range attach.Sides {
				others, _ := attach.Others(in.Ifindex, side) // a device that is gone has none
				for _, o := range others {
					shared[o.Name]++
				}
			}
			for _, h := range []view.Hook{in.ToPod, in.FromPod} {
				if h.Attached && !h.Effective {
					x.add(Fail, check, "find out who attached it; the audit puts Latch in front where it can", "%s: %s runs before Latch", in.Name, strings.Join(h.Ahead, ", "))
				}
			}
		}
	}
	for name, n := range shared {
		x.add(Note, check, "", "%s is on %d hooks of pods, too", name, n)
	}
	if err == nil && !agent.Active() && len(shared) == 0 {
		x.add(OK, check, "", "none on the pods' interfaces")
	}
}

func (x *exam) latchd() {
	const check = "latchd"
	s, err := x.node.Status()
	w := s.Watcher
	switch {
	case err != nil:
		x.add(Fail, check, "restart latchd", "%v", err)
	case w.Spoke == nil:
		x.add(Fail, check, "start it", "has never run here, or with another --state-dir than %s", x.StateDir)
	case time.Until(*w.Spoke) > 5*time.Second:
		x.add(Fail, check, "set the clock", "spoke %s in the future: the clock was set back", time.Until(*w.Spoke).Round(time.Second))
	case w.Stopped:
		x.add(Fail, check, "start it: what is in force stays, and does not change", "does not run: %s", w.Message)
	case !w.Running:
		x.add(Fail, check, "start it: what is in force stays, and does not change", "silent for %s", time.Since(*w.Spoke).Round(time.Second))
	case !w.Ready:
		x.add(Fail, check, "latchctl status", "not ready: %s", w.Message)
	default:
		x.add(OK, check, "", "ready, %s mode", s.Mode)
	}
	for _, p := range w.Problems {
		x.add(Warn, check, problemFix(p.Object), "%s: %s", strings.TrimSpace(p.Object+" "+p.Field), p.Message)
	}
}

// problemFix is what to do about a problem that latchd told.
func problemFix(object string) string {
	switch object {
	case state.ObjectConfiguration:
		return "mend or install the primary CNI's configuration; latchd takes it over by itself"
	case foreign.AgentName:
		return "switch it off; latchd --take-over removes what it leaves"
	}
	return "mend the object; its message says what is wrong"
}

func (x *exam) pods() {
	pods, err := x.node.Pods()
	if err != nil {
		x.add(Fail, "pods", "remove the record; latchd makes it anew", "%v", err)
	}
	var bad, open []string
	for _, p := range pods {
		switch {
		case p.State == view.StateNotAdopted:
			open = append(open, p.Key())
		case !p.Healthy:
			bad = append(bad, p.Key())
		}
	}
	if len(bad) > 0 {
		x.add(Fail, "pods", "latchctl check names the reasons; a running latchd mends them", "not in force: %s", strings.Join(bad, ", "))
	}
	if len(open) > 0 {
		x.add(Fail, "pods", "latchctl check names the reasons; a pod that is made anew comes under policy", "run without policy: %s", strings.Join(open, ", "))
	}
	if len(bad)+len(open) == 0 && err == nil {
		x.add(OK, "pods", "", "all %d in force", len(pods))
	}
}

// From where on a table's fill is told, in percent.
const (
	filling = 80
	full    = 98
)

var tableFixes = map[string]string{
	"slots":          "pods with other labels need other slots: fewer pods, or fewer labels that differ",
	"pod_state":      "fewer interfaces on this node",
	"pod_state_hash": "restart the node when convenient: interface indexes have run far",
	"counters":       "nothing; what is beyond is not counted",
}

func (x *exam) limits() {
	const check = "limits"
	tables, err := x.node.Fill()
	if errors.Is(err, view.ErrNotPinned) {
		return // told by pins
	}
	if err != nil {
		x.add(Warn, check, "", "%v", err)
	}
	var fill []string
	for _, f := range tables {
		fix := tableFixes[f.Table]
		fill = append(fill, fmt.Sprintf("%s %d%%", f.Table, f.Percent()))
		switch {
		case f.Percent() < filling:
		case f.Flows:
			x.add(Warn, check, "latchctl flows: look for the pod that opens most; beyond, the longest unused make room", "%s holds %d of %d flows", f.Table, f.Used, f.Capacity)
		case f.Percent() >= full && f.Table != "counters":
			x.add(Fail, check, fix, "%s is full: %d of %d", f.Table, f.Used, f.Capacity)
		default:
			x.add(Warn, check, fix, "%s holds %d of %d", f.Table, f.Used, f.Capacity)
		}
	}
	x.add(OK, check, "", "%s", strings.Join(fill, ", "))
	uses, err := x.node.Tables()
	if err != nil {
		x.add(Warn, check, "", "%v", err)
	}
	for _, u := range uses {
		if u.Pushed > 0 && !strings.Contains(u.Table, "spill") { // there floods push out each other as a matter of course
			x.add(Note, check, "nothing, if it is over; else latchctl flows: look for the pod that opens most, or a larger --flow-table-size",
				"%d entries were pushed out of %s, which was full, since the node came up", u.Pushed, u.Table)
		}
	}
	if _, lost, err := x.node.Counters([]view.Pod{}); err == nil && lost > 0 {
		x.add(Note, check, "nothing, if they are old; else a lower rate of denied packets", "%d verdict events found no room since the node came up", lost)
	}
}

func (x *exam) logs() {
	s, err := x.node.Store().ReadSettings()
	if err != nil {
		x.add(Warn, "settings", "restart latchd, it writes them again", "%v", err)
		return
	}
	switch {
	case s.FlowLog == "":
		x.add(Note, "flow log", "latchd --flow-log=/var/log/latch/flows.log, to see single verdicts", "off")
	case s.FlowLog == "stdout":
		x.add(OK, "flow log", "", "on, to latchd's standard output")
	default:
		x.file("flow log", s.FlowLog)
	}
	if s.LogFile != "" {
		x.file("plugin log", s.LogFile)
	}
}

func (x *exam) file(check, path string) {
	st, err := os.Stat(path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		x.add(Note, check, "", "%s is not there: nothing was logged, or it is in another mount namespace", path)
	case err != nil:
		x.add(Warn, check, "", "%v", err)
	default:
		x.add(OK, check, "", "%s, %d bytes, written %s ago", path, st.Size(), time.Since(st.ModTime()).Round(time.Second))
	}
}
