package view

import (
	"fmt"

	"github.com/latch-cni/latch/bpf"
)

// TableUse is what has become of the entries of a table that Linux makes room in, since it was made.
type TableUse struct {
	Table    string            `json:"table"`
	Made     uint64            `json:"made"`
	Replaced uint64            `json:"replaced"`  // made again under the same key
	Moved    uint64            `json:"moved"`     // to the spill table
	Ended    map[string]uint64 `json:"ended"`     // taken out by latchd, by cause
	Pushed   uint64            `json:"pushedOut"` // by Linux, as latchd has found
}

// Tables returns what has become of flows and fragments.
func (n *Node) Tables() ([]TableUse, error) {
	k, err := n.objects()
	if err != nil {
		return nil, err
	}
	var all []TableUse
	for _, t := range bpf.Tables() {
		var perCPU []bpf.TableCount
		if err := k.maps["table_counts"].Lookup(uint32(t), &perCPU); err != nil {
			return all, fmt.Errorf("read counts of %s: %w", t, err)
		}
		var end bpf.TableEnd
		if err := k.maps["table_ends"].Lookup(uint32(t), &end); err != nil {
			return all, fmt.Errorf("read ends of %s: %w", t, err)
		}
		use := TableUse{Table: t.String(), Made: end.Made, Ended: map[string]uint64{}, Pushed: end.Pushed}
		for _, c := range perCPU {
			use.Made, use.Replaced, use.Moved = use.Made+c.Made, use.Replaced+c.Replaced, use.Moved+c.Moved
		}
		for _, e := range bpf.Ends() {
			use.Ended[e.String()] = end.Ended[e]
		}
		all = append(all, use)
	}
	return all, nil
}
