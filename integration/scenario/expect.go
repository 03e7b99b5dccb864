package scenario

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Verdicts of a table. Any other letter is refused by Parse.
const (
	Allow   = 'A'
	Deny    = 'D'
	Ignored = '-'
)

// Expect holds one table per target, "TCP/80" for example. Letter j of row i is the verdict of a
// probe from Order[i] to Order[j].
type Expect struct {
	Order  []string
	Tables map[string][]string
}

// Target is a protocol, as in the API (TCP, UDP, SCTP), and a port.
type Target struct {
	Protocol string
	Port     uint16
}

func (t Target) String() string { return fmt.Sprintf("%s/%d", t.Protocol, t.Port) }

// ParseTarget reads "TCP/80".
func ParseTarget(s string) (Target, error) {
	proto, port, found := strings.Cut(s, "/")
	if !found || (proto != "TCP" && proto != "UDP" && proto != "SCTP") {
		return Target{}, fmt.Errorf("table %q is not TCP, UDP or SCTP and a port", s)
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil || n == 0 {
		return Target{}, fmt.Errorf("table %q has no valid port", s)
	}
	return Target{proto, uint16(n)}, nil
}

// Cell is one asserted verdict.
type Cell struct {
	From, To string // keys of pods
	Target   Target
	Want     byte // Allow or Deny
}

// Targets lists what the tables probe, sorted by name.
func (e *Expect) Targets() []Target {
	var ts []Target
	for _, name := range e.tableNames() {
		t, _ := ParseTarget(name) // checked when parsed
		ts = append(ts, t)
	}
	return ts
}

// Cells lists every asserted verdict between two different pods. A pod always reaches itself
// without touching its interface, so the diagonal says nothing about enforcement.
func (e *Expect) Cells() []Cell {
	var cells []Cell
	for _, name := range e.tableNames() {
		t, _ := ParseTarget(name)
		for i, row := range e.Tables[name] {
			for j := range len(row) {
				if i != j && row[j] != Ignored {
					cells = append(cells, Cell{e.Order[i], e.Order[j], t, row[j]})
				}
			}
		}
	}
	return cells
}

func (e *Expect) tableNames() []string {
	names := make([]string, 0, len(e.Tables))
	for name := range e.Tables {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

func (e *Expect) check(pods map[string]bool) error {
	for _, key := range e.Order {
		if !pods[key] {
			return fmt.Errorf("order names pod %s, which does not exist then", key)
		}
	}
	for name, rows := range e.Tables {
		if _, err := ParseTarget(name); err != nil {
			return err
		}
		if len(rows) != len(e.Order) {
			return fmt.Errorf("table %s has %d rows for %d pods", name, len(rows), len(e.Order))
		}
		for i, row := range rows {
			if len(row) != len(e.Order) {
				return fmt.Errorf("table %s row %d has %d letters for %d pods", name, i, len(row), len(e.Order))
			}
			if at := strings.IndexFunc(row, func(r rune) bool { return !strings.ContainsRune("AD-", r) }); at >= 0 {
				return fmt.Errorf("table %s row %d: letter %q is none of A, D, -", name, i, row[at])
			}
		}
	}
	return nil
}
