package bpf_test

import (
	"testing"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/latch-cni/latch/bpf"
	"github.com/latch-cni/latch/shared/testenv"
)

// Every element of an array that is longer than what is mapped at once is where the programs find it.
func TestArrayIsTheMap(t *testing.T) {
	testenv.RequireRoot(t)
	const entries = 3000 // of 64 bytes: the last part is not a whole one
	m, err := ebpf.NewMap(&ebpf.MapSpec{Name: "array", Type: ebpf.Array, KeySize: 4, ValueSize: 64, MaxEntries: entries, Flags: unix.BPF_F_MMAPABLE})
	if err != nil {
		t.Fatal(err)
	}
	a := mapArray[bpf.PodState](t, m)
	defer m.Close()
	again := mapArray[bpf.PodState](t, m)
	if a.Len() != entries {
		t.Fatalf("%d elements, want %d", a.Len(), entries)
	}
	for i := range entries {
		a.At(i).Pod = uint32(i + 1)
	}
	for i := range entries {
		var p bpf.PodState
		if err := m.Lookup(uint32(i), &p); err != nil || p.Pod != uint32(i+1) {
			t.Fatalf("element %d in the map: pod %d, %v", i, p.Pod, err)
		}
		if got := again.At(i).Pod; got != uint32(i+1) {
			t.Fatalf("element %d in memory: pod %d", i, got)
		}
	}
	for _, i := range []int{-1, entries} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("element %d is there", i)
				}
			}()
			a.At(i)
		}()
	}
}
