package harness

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// WriteManifest puts a file into the policy directory by rename, so that latchd sees the old or the
// new content and never a part of it.
func (n *Node) WriteManifest(name string, content []byte) error {
	tmp := filepath.Join(n.spoolDir(), name)
	if err := os.WriteFile(tmp, content, 0o600); err != nil {
		return fmt.Errorf("write manifest: %w", err)
	}
	if err := os.Rename(tmp, filepath.Join(n.PolicyDir, name)); err != nil {
		return fmt.Errorf("write manifest: %w", err)
	}
	return nil
}

// RemoveManifest takes a file out of the policy directory. Returns nil if it is absent.
func (n *Node) RemoveManifest(name string) error {
	err := os.Remove(filepath.Join(n.PolicyDir, name))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("remove manifest: %w", err)
	}
	return nil
}

// PodManifest is the Pod object that the API server holds before the pod's interface exists.
func (n *Node) PodManifest(p Pod, labels map[string]string) []byte {
	raw, err := json.Marshal(object{"apiVersion": "v1", "kind": "Pod",
		"metadata": object{"namespace": p.Namespace, "name": p.Name, "uid": p.UID, "labels": labels},
		"spec":     object{"nodeName": n.cfg.Name}})
	if err != nil {
		panic(fmt.Sprintf("strings and maps of strings do not marshal: %v", err))
	}
	return append(append([]byte("---\n"), raw...), '\n')
}

// Latchctl runs the CLI in the node's namespace and returns its output.
func (n *Node) Latchctl(ctx context.Context, args ...string) (string, error) {
	args = append(args, "--bpffs", n.Bpffs, "--state-dir", n.StateDir)
	var stdout, stderr strings.Builder
	err := n.NS.Do(func() error {
		cmd := exec.CommandContext(ctx, n.cfg.Binaries.Latchctl(), args...)
		cmd.Stdout, cmd.Stderr = &stdout, &stderr
		return cmd.Run()
	})
	if err != nil {
		return stdout.String(), fmt.Errorf("latchctl %s: %w: %s", args[0], err, strings.TrimSpace(stderr.String()))
	}
	return stdout.String(), nil
}

// Eventually calls check until it returns nil or time is up, and then returns its last error.
func Eventually(ctx context.Context, patience time.Duration, check func() error) error {
	deadline := time.Now().Add(patience)
	for {
		err := check()
		if err == nil {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("after %v: %w", patience, err)
		}
		select {
		case <-ctx.Done():
			return errors.Join(ctx.Err(), err)
		case <-time.After(20 * time.Millisecond):
		}
	}
}
