// Command init is process 1 of a virtual machine with another kernel. It mounts what a test on the
// kernel needs, loads modules, runs every NAME.test in /tests one after the other with the arguments in
// NAME.test.args and in /args, and powers off. The last line on the console is "tests exit N", N being how
// many failed.
package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

func main() {
	for _, m := range [][3]string{
		{"proc", "/proc", "proc"}, {"sysfs", "/sys", "sysfs"}, {"devtmpfs", "/dev", "devtmpfs"},
		{"tmpfs", "/tmp", "tmpfs"}, {"tmpfs", "/run", "tmpfs"}, {"bpf", "/sys/fs/bpf", "bpf"},
	} {
		if err := mount(m[0], m[1], m[2]); err != nil {
			fmt.Println("init:", err)
		}
	}
	if err := loadModules("/modules"); err != nil {
		fmt.Println("init:", err)
	}
	if err := loopbackUp(); err != nil {
		fmt.Println("init:", err)
	}
	failed, err := runTests("/tests", "/args")
	if err != nil {
		fmt.Println("init:", err)
		failed++
	}
	fmt.Printf("tests exit %d\n", failed)
	unix.Sync()
	time.Sleep(100 * time.Millisecond) // the console is slow
	if err := unix.Reboot(unix.LINUX_REBOOT_CMD_POWER_OFF); err != nil {
		fmt.Println("init:", err)
	}
}

func mount(source, target, kind string) error {
	if err := os.MkdirAll(target, 0o755); err != nil {
		return err
	}
	if err := unix.Mount(source, target, kind, 0, ""); err != nil && err != unix.EBUSY {
		return fmt.Errorf("mount %s: %w", target, err)
	}
	return nil
}

// loadModules loads the modules that a file lists, those that others need first.
func loadModules(list string) error {
	names, err := os.ReadFile(list)
	if err != nil {
		return err
	}
	left := strings.Fields(string(names))
	for {
		var waiting []string
		var errs []error
		for _, name := range left {
			image, err := os.ReadFile(filepath.Join("/lib/modules", name))
			if err == nil {
				err = unix.InitModule(image, "")
			}
			if err != nil && err != unix.EEXIST {
				waiting = append(waiting, name)
				errs = append(errs, fmt.Errorf("load module %s: %w", name, err))
			}
		}
		if len(waiting) == len(left) || len(waiting) == 0 {
			return errors.Join(errs...)
		}
		left = waiting
	}
}

func loopbackUp() error {
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return fmt.Errorf("find loopback: %w", err)
	}
	if err := netlink.LinkSetUp(lo); err != nil {
		return fmt.Errorf("set loopback up: %w", err)
	}
	return nil
}

// runTests runs every binary of a folder and returns how many failed.
func runTests(dir, argsFile string) (failed int, err error) {
	args, err := os.ReadFile(argsFile)
	if err != nil {
		return 0, err
	}
	tests, err := os.ReadDir(dir)
	if err != nil {
		return 0, err
	}
	for _, t := range tests {
		if filepath.Ext(t.Name()) != ".test" {
			continue
		}
		own, err := os.ReadFile(filepath.Join(dir, t.Name()+".args"))
		if err != nil && !os.IsNotExist(err) {
			return failed, err
		}
		cmd := exec.Command(filepath.Join(dir, t.Name()), slices.Concat(strings.Fields(string(own)), strings.Fields(string(args)))...) // a -test.run of the caller wins
		cmd.Dir = dir
		cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
		cmd.Env = []string{"PATH=/bin", "HOME=/tmp", "TMPDIR=/tmp", "CI=true", "LATCH_BIN_DIR=" + filepath.Join(dir, "bin")}
		start := time.Now()
		if err := cmd.Run(); err != nil {
			fmt.Printf("FAIL %s: %v\n", t.Name(), err)
			failed++
			continue
		}
		fmt.Printf("ok   %s %.1fs\n", t.Name(), time.Since(start).Seconds())
	}
	return failed, nil
}
