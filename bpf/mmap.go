package bpf

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// windowSize is how much of an array is mapped at once. The kernel fills in every page that is mapped,
// and the plugin needs one element of 65536.
const windowSize = 64 << 10

// Array is the memory of an mmapable array map, shared with the programs. Its elements change under
// the reader: use sync/atomic on fields that the programs or another writer touch.
type Array[T any] struct {
	m       *ebpf.Map
	prot    int
	len     int
	windows []atomic.Pointer[[]byte]
	mu      sync.Mutex // held to map a window
}

// MapArray maps an array made with BPF_F_MMAPABLE whose values are T. It needs m only for the call.
func MapArray[T any](m *ebpf.Map) (*Array[T], error) {
	return mapArray[T](m, unix.PROT_READ|unix.PROT_WRITE)
}

func mapArray[T any](m *ebpf.Map, prot int) (*Array[T], error) {
	size := int(unsafe.Sizeof(*new(T)))
	if int(m.ValueSize()) != size || size%8 != 0 || windowSize%size != 0 {
		return nil, fmt.Errorf("mmap %s: values are %d bytes, type has %d", m, m.ValueSize(), size)
	}
	a := &Array[T]{prot: prot, len: int(m.MaxEntries())}
	a.windows = make([]atomic.Pointer[[]byte], (a.len*size+windowSize-1)/windowSize)
	var err error
	if a.m, err = m.Clone(); err != nil {
		return nil, fmt.Errorf("mmap %s: %w", m, err)
	}
	if _, err := a.window(0); err != nil {
		return nil, errors.Join(fmt.Errorf("mmap %s: %w", m, err), a.Close())
	}
	return a, nil
}

// At returns element i. The pointer is valid until Close. It panics where the process has no memory left
// to map the element.
func (a *Array[T]) At(i int) *T {
	if i < 0 || i >= a.len {
		panic(fmt.Sprintf("element %d of an array of %d", i, a.len))
	}
	offset := i * int(unsafe.Sizeof(*new(T)))
	mem, err := a.window(offset / windowSize)
	if err != nil {
		panic(fmt.Sprintf("mmap element %d: %v", i, err))
	}
	return (*T)(unsafe.Pointer(&mem[offset%windowSize]))
}

// window returns a part of the memory, which it maps when it is asked for first.
func (a *Array[T]) window(n int) ([]byte, error) {
	if mem := a.windows[n].Load(); mem != nil {
		return *mem, nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if mem := a.windows[n].Load(); mem != nil {
		return *mem, nil
	}
	from := n * windowSize
	mem, err := unix.Mmap(a.m.FD(), int64(from), min(windowSize, a.len*int(unsafe.Sizeof(*new(T)))-from), a.prot, unix.MAP_SHARED)
	if err != nil {
		return nil, err
	}
	a.windows[n].Store(&mem)
	return mem, nil
}

// Len is the number of elements.
func (a *Array[T]) Len() int { return a.len }

// Close unmaps the memory. Safe to call again.
func (a *Array[T]) Close() error {
	var errs []error
	for i := range a.windows {
		if mem := a.windows[i].Swap(nil); mem != nil {
			errs = append(errs, unix.Munmap(*mem))
		}
	}
	a.windows, a.len = nil, 0
	return errors.Join(append(errs, a.m.Close())...)
}
