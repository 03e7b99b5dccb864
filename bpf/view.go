package bpf

import (
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// ViewArray is MapArray for readers: a store through At faults. m must be open for writing all the
// same: of a file that is not, the kernel makes no shared mapping, and a map has no other.
func ViewArray[T any](m *ebpf.Map) (*Array[T], error) { return mapArray[T](m, unix.PROT_READ) }

// Duration is so many units of stamps: the reverse of Stamp.
func Duration(stamps int32) time.Duration { return time.Duration(stamps) << stampShift }
