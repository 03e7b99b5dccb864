package enforce

import (
	"fmt"
	"sync/atomic"

	"github.com/latch-cni/latch/bpf"
)

// Table is what the last Expire has found of one of the tables that Linux makes room in, and what has become
// of their entries since they were made.
type Table struct {
	Table          bpf.Table
	Live, Capacity int
	Ended          map[bpf.End]uint64 // taken out by Expire
	Pushed         uint64             // by Linux, to make room
}

// Tables returns what the last Expire has found, nil before the first.
func (e *Enforcer) Tables() []Table {
	if found := e.tables.Load(); found != nil {
		return *found
	}
	return nil
}

func (o *objects) table(t bpf.Table, live int) Table {
	end := o.ends.At(int(t))
	found := Table{Table: t, Live: live, Capacity: int(o.maps[t.String()].MaxEntries()), Ended: map[bpf.End]uint64{}, Pushed: end.Pushed}
	for _, e := range bpf.Ends() {
		found.Ended[e] = atomic.LoadUint64(&end.Ended[e])
	}
	return found
}

// account is how many entries were ever put into a table, and how many taken out again by whoever says so.
// What is not there either was pushed out by Linux, which does not say so.
type account struct{ made, taken, cpus int64 }

func (o *objects) account(t bpf.Table) (account, error) {
	var perCPU []bpf.TableCount
	if err := o.maps["table_counts"].Lookup(uint32(t), &perCPU); err != nil {
		return account{}, fmt.Errorf("read counts of %s: %w", t, err)
	}
	end := o.ends.At(int(t))
	a := account{made: int64(atomic.LoadUint64(&end.Made)), cpus: int64(len(perCPU))}
	for _, n := range perCPU {
		a.made += int64(n.Made)
		a.taken += int64(n.Moved)
	}
	for i := range end.Ended {
		a.taken += int64(atomic.LoadUint64(&end.Ended[i]))
	}
	return a, nil
}

// reckon finds out how many entries a table has lost to Linux, from what its accounts were before and after
// a walk through it that met so many entries and took so many of them out. The walk takes its time, and
// entries come and go meanwhile. But what was there all along was met, and what was met was there: the
// number lies between two bounds, which are one when nothing happens, and the lower one is believed.
//
// It is more than the upper one can be only after another build was at work, which counted nothing: then, or
// when it is seen that other programs were at work before, counting begins anew from here.
func (o *objects) reckon(t bpf.Table, program uint32, before, after account, kept, deleted uint64) {
	end := o.ends.At(int(t))
	least := before.made - after.taken - int64(kept)
	most := after.made - before.taken - int64(kept+deleted)
	pushed, offset := int64(end.Pushed), end.Offset
	switch {
	case end.Program != 0 && end.Program != program:
		offset = pushed - least
	case most+offset+after.cpus < pushed: // each may have an entry that is made and not counted yet
		offset = pushed - most
	}
	atomic.StoreInt64(&end.Offset, offset)
	atomic.StoreUint64(&end.Pushed, uint64(max(pushed, least+offset)))
	atomic.StoreUint32(&end.Program, program)
}
