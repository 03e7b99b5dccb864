package bpf

import (
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// ViewArray is MapArray for readers: m may be open for reading only, and a store through At faults.
func ViewArray[T any](m *ebpf.Map) (*Array[T], error) { return mapArray[T](m, unix.PROT_READ) }

// Duration is so many units of stamps: the reverse of Stamp.
func Duration(stamps int32) time.Duration { return time.Duration(stamps) << stampShift }
