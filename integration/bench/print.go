package main

import (
	"fmt"
	"os"
	"slices"
	"text/tabwriter"
	"time"
)

// targets of latch's ADD, as ratios to others.
var targets = []struct {
	to          string
	min, median float64 // 0 = none
}{
	{"empty Go main", 1.6, 1.5},
	{doesNothing, 0, 0},
	{"bandwidth", 0.75, 0.65},
	{"portmap, no mapping", 0.45, 0.45},
	{"portmap, 1 port (nftables)", 0.15, 0.15},
}

func printTable(all []*contestant) {
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "process\tADD min\tmedian\tp90\tCPU median\tDEL median")
	for _, c := range all {
		del := "-"
		if len(c.del) > 0 {
			del = millis(at(c.del, 0.5))
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\n", c.name, millis(at(c.wall, 0)), millis(at(c.wall, 0.5)), millis(at(c.wall, 0.9)), millis(at(c.cpu, 0.5)), del)
	}
	fmt.Fprintln(w, "\t\t\t\t\t")
	fmt.Fprintln(w, "latch to\tmin\ttarget\tmedian\ttarget\t")
	latch := all[0]
	for _, t := range targets {
		i := slices.IndexFunc(all, func(c *contestant) bool { return c.name == t.to })
		if i < 0 {
			continue
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t\n", t.to,
			against(ratio(at(latch.wall, 0), at(all[i].wall, 0)), t.min), against(ratio(at(latch.wall, 0.5), at(all[i].wall, 0.5)), t.median))
	}
	_ = w.Flush()
	fmt.Printf("\n%s takes %.2f (min) and %.2f (median) of an empty Go main: the floor of what is linked.\n\n", doesNothing,
		ratio(at(find(all, doesNothing).wall, 0), at(find(all, "empty Go main").wall, 0)),
		ratio(at(find(all, doesNothing).wall, 0.5), at(find(all, "empty Go main").wall, 0.5)))
}

func find(all []*contestant, name string) *contestant {
	return all[slices.IndexFunc(all, func(c *contestant) bool { return c.name == name })]
}

func against(got, target float64) string {
	if target == 0 {
		return fmt.Sprintf("%.2f\t-", got)
	}
	verdict := "met"
	if got > target {
		verdict = "missed"
	}
	return fmt.Sprintf("%.2f\t<= %.2f %s", got, target, verdict)
}

func ratio(a, b time.Duration) float64 { return float64(a) / float64(b) }

func millis(d time.Duration) string { return fmt.Sprintf("%.1f ms", float64(d.Microseconds())/1000) }

func at(d []time.Duration, quantile float64) time.Duration {
	sorted := slices.Sorted(slices.Values(d))
	return sorted[int(quantile*float64(len(sorted)-1))]
}
