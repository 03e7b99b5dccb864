package bpf

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
)

// Batches calls fn with the entries of a hash, some thousand at a time. An entry that changes meanwhile may
// be missed or come twice. The error wraps ebpf.ErrNotSupported for maps without batch operations, as tries
// before Linux 5.13 are, or is the first one of fn, which ends it.
func Batches[K, V any](m *ebpf.Map, fn func(keys []K, values []V) error) error {
	const batch = 4096
	keys, values := make([]K, batch), make([]V, batch)
	var cursor ebpf.MapBatchCursor
	for {
		n, err := m.BatchLookup(&cursor, keys, values, nil)
		if err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			return fmt.Errorf("list %s: %w", m, err)
		}
		if err := fn(keys[:n], values[:n]); err != nil {
			return err
		}
		if err != nil {
			return nil
		}
	}
}
