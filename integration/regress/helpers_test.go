package regress

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// helpers are the programs that the test binary is when it is called by their names.
var helpers = map[string]func() int{
	withoutBPF: execWithoutBPF,
}

// withoutBPF ERRNO PROGRAM executes a program whose bpf system call fails: a kernel that lacks it.
const withoutBPF = "without-bpf"

func execWithoutBPF() int {
	runtime.LockOSThread()
	errno, err := strconv.Atoi(os.Args[1])
	if err == nil {
		err = failBPF(errno)
	}
	if err == nil {
		err = syscall.Exec(os.Args[2], os.Args[2:], os.Environ())
	}
	fmt.Fprintln(os.Stderr, withoutBPF, err)
	return 1
}

// failBPF has the system call fail for this thread and what it executes.
func failBPF(errno int) error {
	filter := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: 0}, // seccomp_data.nr
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: unix.SYS_BPF, Jf: 1},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ERRNO | uint32(errno)},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW},
	}
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	return unix.Prctl(unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER, uintptr(unsafe.Pointer(&program)), 0, 0)
}

func unmount(path string) error { return unix.Unmount(path, unix.MNT_DETACH) }
