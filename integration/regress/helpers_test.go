package regress

import (
	"golang.org/x/sys/unix"
)

// helpers are the programs that the test binary is when it is called by their names.
var helpers = map[string]func() int{}

func unmount(path string) error { return unix.Unmount(path, unix.MNT_DETACH) }
