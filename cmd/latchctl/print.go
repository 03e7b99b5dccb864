package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/latch-cni/latch/shared/view"
)

// print writes v as JSON or YAML, or calls table for people.
func (a *app) print(v any, table func(io.Writer)) error {
	switch a.output {
	case "json":
		e := json.NewEncoder(a.out)
		e.SetIndent("", "  ")
		e.SetEscapeHTML(false)
		return e.Encode(v)
	case "yaml":
		b, err := yaml.Marshal(v)
		if err != nil {
			return err
		}
		_, err = a.out.Write(b)
		return err
	}
	table(a.out)
	return nil
}

// columns writes rows of aligned columns. Empty cells are shown as a dash.
func columns(w io.Writer, rows ...[]string) {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, row := range rows {
		for i, cell := range row {
			if cell == "" {
				cell = "-"
			}
			if i > 0 {
				cell = "\t" + cell
			}
			fmt.Fprint(t, cell)
		}
		fmt.Fprintln(t)
	}
	_ = t.Flush()
}

// age is the time since t as people say it.
func age(t *time.Time) string {
	if t == nil || t.IsZero() {
		return ""
	}
	return short(time.Since(*t))
}

// short is a duration in its largest unit, or two of them.
func short(d time.Duration) string {
	switch {
	case d < time.Second:
		return fmt.Sprintf("%dms", d.Milliseconds())
	case d < time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%dm%ds", int(d.Minutes()), int(d.Seconds())%60)
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh%dm", int(d.Hours()), int(d.Minutes())%60)
	}
	return fmt.Sprintf("%dd", int(d.Hours())/24)
}

func policyNames(policies []view.Policy) string {
	var names []string
	for _, p := range policies {
		names = append(names, p.String())
	}
	return strings.Join(names, ", ")
}

// peer names the prefix of a rule.
func peer(prefix string) string {
	if prefix == "" {
		return "any other"
	}
	return prefix
}

func plural(n int, one string) string {
	if n == 1 {
		return fmt.Sprintf("1 %s", one)
	}
	return fmt.Sprintf("%d %ss", n, one)
}
