package main

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// right is a capability that latchd works by, and what for.
type right struct {
	number    int
	name, why string
}

// What latchd and its uninstall cannot do without. SYS_ADMIN includes BPF and PERFMON, which the kernel asks
// for instead where it asks for less; SYS_RESOURCE is needed on kernels before 5.11 only (latchctl doctor).
var (
	toAttach = right{unix.CAP_NET_ADMIN, "NET_ADMIN", "attach programs to interfaces"}
	toOpen   = right{unix.CAP_SYS_ADMIN, "SYS_ADMIN", "open a rule set, which the kernel tells by the id of its map only"}
	toLook   = right{unix.CAP_BPF, "BPF", "open the pinned programs of another policy agent"}
)

// lacking returns an error that names the rights that the process does not have. What the kernel says
// when it is asked without one is "operation not permitted", and often guesses at another reason.
func lacking(needed ...right) error {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var has [2]unix.CapUserData
	if err := unix.Capget(&header, &has[0]); err != nil {
		return fmt.Errorf("read own capabilities: %w", err)
	}
	var errs []error
	for _, r := range needed {
		if has[r.number/32].Effective&(1<<(r.number%32)) == 0 {
			errs = append(errs, fmt.Errorf("capability %s is missing: needed to %s", r.name, r.why))
		}
	}
	return errors.Join(errs...)
}
