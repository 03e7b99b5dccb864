package doctor

import (
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/features"
	"golang.org/x/sys/unix"
)

// Kernels, as LinuxVersionCode tells them.
const (
	floor       = 5<<16 | 10<<8 // what is supported
	withTCX     = 6<<16 | 6<<8
	withoutLock = 5<<16 | 11<<8 // bpf memory is charged to the control group
)

func (x *exam) kernel() {
	code, err := features.LinuxVersionCode()
	if err != nil {
		x.add(Fail, "kernel", "", "its version cannot be read: %v", err)
		return
	}
	release := x.line(x.Proc, "sys/kernel/osrelease")
	if code < floor {
		x.add(Fail, "kernel", "use 5.10 or newer", "%s is too old", release)
	} else {
		x.add(OK, "kernel", "", "%s", release)
	}
	if code < withTCX {
		x.add(Note, "tcx", "nothing; 6.6 or newer saves about 140 ns a packet", "not in this kernel, interfaces are attached by clsact")
	} else {
		x.add(OK, "tcx", "", "available")
	}
	if features.HaveProgramHelper(ebpf.SchedCLS, asm.FnKtimeGetCoarseNs) != nil {
		x.add(Note, "coarse clock", "nothing; 5.11 or newer has it", "not in this kernel, the exact one is read for every packet")
	} else {
		x.add(OK, "coarse clock", "", "available")
	}
	if _, err := os.Stat(filepath.Join(x.Sys, "kernel/btf/vmlinux")); err != nil {
		x.add(Note, "btf", "nothing; CONFIG_DEBUG_INFO_BTF makes bpftool's dumps readable", "the kernel has none")
	} else {
		x.add(OK, "btf", "", "available")
	}
	if x.line(x.Proc, "sys/net/core/bpf_jit_enable") == "0" {
		x.add(Warn, "jit", "sysctl -w net.core.bpf_jit_enable=1", "programs are interpreted: every packet costs several times as much")
	}
	x.memlock(code)
}

func (x *exam) memlock(code uint32) {
	var r unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_MEMLOCK, &r); err != nil {
		x.add(Warn, "memlock", "", "%v", err)
		return
	}
	const need = 256 << 20
	switch {
	case code >= withoutLock:
		x.add(OK, "memlock", "", "not needed by this kernel")
	case r.Cur >= need:
		x.add(OK, "memlock", "", "enough")
	default:
		x.add(Note, "memlock", "give latchd and latch CAP_SYS_RESOURCE: they raise it", "%d MiB here, maps need up to %d", r.Cur>>20, need>>20)
	}
}

func (x *exam) bpffs() {
	var st unix.Statfs_t
	if err := unix.Statfs(x.Bpffs, &st); err != nil {
		x.add(Fail, "bpffs", "mount -t bpf bpf "+x.Bpffs, "%s: %v", x.Bpffs, err)
	} else if st.Type != unix.BPF_FS_MAGIC {
		x.add(Fail, "bpffs", "mount -t bpf bpf "+x.Bpffs+"; in a container, mount the host's", "%s is not one", x.Bpffs)
	} else {
		x.add(OK, "bpffs", "", "mounted at %s", x.Bpffs)
	}
}

// Clocks that are read in a few nanoseconds.
var fastClocks = []string{"tsc", "kvm-clock", "arch_sys_counter", "hyperv_clocksource_tsc_page"}

func (x *exam) clock() {
	source := x.line(x.Sys, "devices/system/clocksource/clocksource0/current_clocksource")
	if source != "" && !slices.Contains(fastClocks, source) {
		x.add(Warn, "clock", "select another in clocksource0/current_clocksource, if available_clocksource has one", "%s is slow to read", source)
	} else {
		x.add(OK, "clock", "", "%s", source)
	}
}

// line is the first line of a file, empty if it is not there.
func (x *exam) line(root, name string) string {
	raw, _ := os.ReadFile(filepath.Join(root, name))
	first, _, _ := strings.Cut(string(raw), "\n")
	return strings.TrimSpace(first)
}
