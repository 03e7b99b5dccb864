package bpf_test

import (
	"testing"

	"github.com/latch-cni/latch/bpf"
	"github.com/latch-cni/latch/shared/testenv"
)

// tableCount adds up what the programs count of a table.
func (r *rig) tableCount(table bpf.Table) (sum bpf.TableCount) {
	r.Helper()
	var perCPU []bpf.TableCount
	r.must(r.Maps["table_counts"].Lookup(uint32(table), &perCPU))
	for _, n := range perCPU {
		sum.Made, sum.Replaced, sum.Moved = sum.Made+n.Made, sum.Replaced+n.Replaced, sum.Moved+n.Moved
	}
	return sum
}

// What is put into a table and taken out of it is counted: new keys, values of keys that were there, and what
// moves to the spill table. Packets of flows that are known count nothing.
func TestTableCounts(t *testing.T) {
	both(t, func(t *testing.T, r *rig, f family) {
		r.load(policy{onMiss: deny2, rules: [2][]rule{1: {allPorts(f.host)}}})
		flows, spill := bpf.TableFlows4+bpf.Table(f.index), bpf.TableSpill4+bpf.Table(f.index)
		want := func(what string, of map[bpf.Table]bpf.TableCount) {
			t.Helper()
			for _, table := range bpf.Tables() {
				if got := r.tableCount(table); got != of[table] {
					t.Errorf("%s: %s has %+v, want %+v", what, table, got, of[table])
				}
			}
		}
		open := f.open(bpf.Egress, f.peer, 80)
		first := func(id uint16) []byte { return fragments(bigUDP(f, bpf.Egress, 5000, f.peer, 53), id, 1480)[0] }

		r.want("allow policy", bpf.Egress, open)
		want("opened", map[bpf.Table]bpf.TableCount{flows: {Made: 1}})
		r.want("allow policy", bpf.Egress, open)
		want("opened again", map[bpf.Table]bpf.TableCount{flows: {Made: 1, Replaced: 1}})
		r.want("allow flow", bpf.Egress, f.tcp(bpf.Egress, 41000, f.peer, 80, testenv.ACK))
		r.want("deny policy", bpf.Egress, f.open(bpf.Egress, f.other, 80))
		want("known, and denied", map[bpf.Table]bpf.TableCount{flows: {Made: 1, Replaced: 1}})
		r.want("allow policy", bpf.Egress, first(1))
		r.want("allow flow", bpf.Egress, first(1))
		all := map[bpf.Table]bpf.TableCount{flows: {Made: 2, Replaced: 1}, bpf.TableFrags: {Made: 1, Replaced: 1}}
		want("fragments", all)

		// The coarse clock of the programs may be a little behind.
		over := bpf.Share{Pod: podID, Window: bpf.Now() - 1, Opened: 1 << 20, Spilled: 1}
		r.must(r.Maps["shares"].Put(uint32(podIfindex), &over))
		r.must(r.Maps["quotas"].Put(uint32(podIfindex), &bpf.Quota{Frags: over}))
		r.want("allow over-share", bpf.Egress, open)
		all[flows], all[spill] = bpf.TableCount{Made: 2, Replaced: 1, Moved: 1}, bpf.TableCount{Made: 1}
		want("beyond the share", all)
		r.want("allow over-share", bpf.Egress, open)
		all[spill] = bpf.TableCount{Made: 1, Replaced: 1}
		want("beyond the share again", all)
		for range 2 {
			r.run(bpf.Egress, first(1))
		}
		all[bpf.TableFrags], all[bpf.TableFragSpill] = bpf.TableCount{Made: 1, Replaced: 1, Moved: 1}, bpf.TableCount{Made: 1, Replaced: 1}
		want("fragments beyond the share", all)
	})
}

// In a table that pushes out entries, each that was made is counted once.
func TestTableCountsOfFullTables(t *testing.T) {
	both(t, func(t *testing.T, r *rig, f family) {
		r.load(policy{onMiss: deny2, rules: [2][]rule{1: {allPorts(f.all)}}})
		const pods, each = 20, 500
		for pod := range pods {
			r.pods.At(podIfindex).Pod = podID + uint32(pod)
			for port := range each {
				if allow, err := r.once(bpf.Egress, f.udp(bpf.Egress, 1000+port, f.peer, 53)); err != nil || !allow {
					t.Fatalf("allow is %v, error %v", allow, err)
				}
			}
		}
		if n := r.flows(f); n > 4096 || n < 2048 {
			t.Errorf("the table holds %d flows, of %d", n, pods*each)
		}
		if got, want := r.tableCount(bpf.TableFlows4+bpf.Table(f.index)), (bpf.TableCount{Made: pods * each}); got != want {
			t.Errorf("counted %+v, want %+v", got, want)
		}
	})
}
