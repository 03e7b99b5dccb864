package bpf

import (
	"fmt"
	"unsafe"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// Array is the memory of an mmapable array map, shared with the programs. Its elements change under
// the reader: use sync/atomic on fields that the programs or another writer touch.
type Array[T any] struct {
	mem   []byte
	elems []T
}

// MapArray maps an array made with BPF_F_MMAPABLE whose values are T. It needs m only for the call.
func MapArray[T any](m *ebpf.Map) (*Array[T], error) {
	return mapArray[T](m, unix.PROT_READ|unix.PROT_WRITE)
}

func mapArray[T any](m *ebpf.Map, prot int) (*Array[T], error) {
	size := unsafe.Sizeof(*new(T))
	if uintptr(m.ValueSize()) != size || size%8 != 0 {
		return nil, fmt.Errorf("mmap %s: values are %d bytes, type has %d", m, m.ValueSize(), size)
	}
	n := int(m.MaxEntries())
	mem, err := unix.Mmap(m.FD(), 0, n*int(size), prot, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("mmap %s: %w", m, err)
	}
	return &Array[T]{mem: mem, elems: unsafe.Slice((*T)(unsafe.Pointer(&mem[0])), n)}, nil
}

// At returns element i. The pointer is valid until Close.
func (a *Array[T]) At(i int) *T { return &a.elems[i] }

// Len is the number of elements.
func (a *Array[T]) Len() int { return len(a.elems) }

// Close unmaps the memory. Safe to call again.
func (a *Array[T]) Close() error {
	mem := a.mem
	a.mem, a.elems = nil, nil
	if mem == nil {
		return nil
	}
	return unix.Munmap(mem)
}
