package pins

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// EnsureBPFFS makes sure that dir lies on a bpffs, by mounting one on it if need be. What is in dir would be
// hidden by that, so that it has to be empty. Safe to call again.
func EnsureBPFFS(dir string) error {
	ok, err := onBPFFS(dir)
	if errors.Is(err, os.ErrNotExist) {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return fmt.Errorf("make folder for bpffs: %w", err)
		}
		ok, err = onBPFFS(dir)
	}
	if ok || err != nil {
		return err
	}
	there, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("look for bpffs: %w", err)
	}
	if len(there) > 0 {
		return fmt.Errorf("%s is not on a bpffs, and not empty (%s): name the folder of the node's bpffs, or an empty one for it", dir, there[0].Name())
	}
	if err := unix.Mount("bpffs", dir, "bpf", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "mode=0700"); err != nil {
		return fmt.Errorf("%s is not on a bpffs, mount one: %w", dir, err)
	}
	return nil
}

func onBPFFS(dir string) (bool, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return false, fmt.Errorf("look for bpffs: %w", &os.PathError{Op: "statfs", Path: dir, Err: err})
	}
	return st.Type == unix.BPF_FS_MAGIC, nil
}
