package bpf

import "golang.org/x/sys/unix"

// liftMemlock makes room for maps and programs: before 5.11 the kernel charges them to RLIMIT_MEMLOCK.
// Where that is not permitted, and needed, making them fails with EPERM. It is no package of its own that
// asks the kernel whether it is needed: such a question costs the plugin a millisecond at every start.
func liftMemlock() {
	all := &unix.Rlimit{Cur: unix.RLIM_INFINITY, Max: unix.RLIM_INFINITY}
	_ = unix.Prlimit(0, unix.RLIMIT_MEMLOCK, all, nil)
}
