package main

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// keysFoot is what the foot says of keys.
const keysFoot = "q quits   "

// frame draws a sample on a screen: as many lines as there are rows at most, none wider.
func frame(s sample, width, height int) []string {
	broken := 0
	for _, p := range s.Pods {
		if !p.Healthy {
			broken++
		}
	}
	head := fmt.Sprintf("latch  %s  latchd %s", nodeLine(s.Node), watcherLine(s.Node.Watcher))
	clock := s.Time.Local().Format("15:04:05")
	lines := []string{
		cut(head, width-len(clock)-2),
		cut(fmt.Sprintf("pods %d, not in force %d   flows %d   new %s/s   drops %s/s", len(s.Pods), broken, s.Flows, rate(s.New), rate(s.Drops)), width),
		"",
	}
	lines[0] += strings.Repeat(" ", max(1, width-utf8.RuneCountInString(lines[0])-len(clock))) + clock

	// Pods get what the denied ones do not need, and at least half of the rest.
	room := max(0, height-len(lines)-4) // two headings, an empty line, the foot
	deniedRows := min(len(s.Denied), max(room/2, room-len(s.Pods)))
	deniedRows = max(deniedRows, min(1, room))
	podRows := room - deniedRows
	lines = append(lines, podLines(s.Pods, width, podRows)...)
	lines = append(lines, "")
	lines = append(lines, deniedLines(s, width, deniedRows)...)
	lines = append(lines, cut(keysFoot+"* rate of several pods, which share rules", width))
	if len(lines) > height {
		lines = lines[:height]
	}
	for i := range lines {
		lines[i] = cut(lines[i], width)
	}
	return lines
}

// Headings begin like this: they are bold.
const (
	podHeading    = "POD"
	deniedHeading = "DENIED"
)

func heading(line string) bool {
	return strings.HasPrefix(line, podHeading+" ") || strings.HasPrefix(line, deniedHeading+" ")
}

func podLines(pods []podSample, width, rows int) []string {
	// Fixed columns take 49; the name gets a third of what is left, at least 20, and policies the rest.
	const fixed = 49
	name := max(20, min(50, (width-fixed)/2))
	row := func(cells ...string) string {
		return fmt.Sprintf("%s %-12s %-8s %-8s %7s %7s  %s", pad(cells[0], name), cells[1], cells[2], cells[3], cells[4], cells[5], cells[6])
	}
	lines := []string{row(podHeading, "STATE", "INGRESS", "EGRESS", "NEW/s", "DROPS/s", "POLICIES")}
	if len(pods) == 0 {
		return append(lines, "no pods")[:min(2, rows+1)]
	}
	for i, p := range pods {
		if i == rows-1 && len(pods) > rows {
			return append(lines, fmt.Sprintf("... and %d more", len(pods)-i))
		}
		if i >= rows {
			break
		}
		ingress, egress := p.Ingress.String(), p.Egress.String()
		if len(p.Interfaces) == 0 {
			ingress, egress = "-", "-"
		}
		mark := ""
		if p.Shared {
			mark = "*"
		}
		lines = append(lines, row(p.Key(), string(p.State), ingress, egress, rate(p.New)+mark, rate(p.Drops)+mark, policyNames(p.Policies)))
	}
	return lines
}

func deniedLines(s sample, width, rows int) []string {
	since := "of the last minute, by the flow log"
	if !s.FlowLog {
		since = "of the last second, by the counters; turn on the flow log to see who"
	}
	lines := []string{fmt.Sprintf("%s %s", deniedHeading, since)}
	if rows > 0 && len(s.Denied) == 0 {
		return append(lines, "nothing")
	}
	for i, d := range s.Denied {
		if i >= rows {
			break
		}
		if d.What == "" {
			lines = append(lines, fmt.Sprintf("%8d  %-7s  %s  %s", d.Packets, d.Direction, pad(dash(d.Pod), 30), d.By))
			continue
		}
		pod := min(40, max(16, (width-60)/2))
		lines = append(lines, fmt.Sprintf("%8d  %-7s  %s  %s  %s", d.Packets, d.Direction, pad(dash(d.Pod), pod), d.What, d.By))
	}
	return lines
}

// rate is short, whatever it is.
func rate(r float64) string {
	switch {
	case r == 0:
		return "0"
	case r < 10:
		return fmt.Sprintf("%.1f", r)
	case r < 100_000:
		return fmt.Sprintf("%.0f", r)
	}
	return fmt.Sprintf("%.0fk", r/1000)
}

// cut makes a text no wider than so many columns.
func cut(s string, width int) string {
	if utf8.RuneCountInString(s) <= width {
		return s
	}
	if width < 1 {
		return ""
	}
	return string([]rune(s)[:width-1]) + "~"
}

// pad makes a text exactly so wide. A name that is cut keeps its end, which tells pods apart.
func pad(s string, width int) string {
	n := utf8.RuneCountInString(s)
	if n > width {
		return "~" + string([]rune(s)[n-width+1:])
	}
	return s + strings.Repeat(" ", width-n)
}
