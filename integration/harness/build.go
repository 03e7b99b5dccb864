package harness

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// BinariesEnv names a directory with ready-made latch, latchd and latchctl. Tool plugins that are not there,
// too, are built: a machine without Go needs them.
const BinariesEnv = "LATCH_BIN_DIR"

const toolModule = "github.com/containernetworking/plugins"

// toolPlugins are the plugins of other people that chains are made of.
var toolPlugins = []string{"main/ptp", "main/bridge", "ipam/host-local", "ipam/static", "meta/portmap", "meta/bandwidth"}

// Binaries are built programs. Dir holds every plugin of a chain: it is the CNI_PATH.
type Binaries struct {
	Dir string
}

// Latch is the plugin.
func (b *Binaries) Latch() string { return filepath.Join(b.Dir, "latch") }

// Latchd is the node watcher.
func (b *Binaries) Latchd() string { return filepath.Join(b.Dir, "latchd") }

// Latchctl is the operator's CLI.
func (b *Binaries) Latchctl() string { return filepath.Join(b.Dir, "latchctl") }

// Remove deletes what Build made.
func (b *Binaries) Remove() error { return os.RemoveAll(b.Dir) }

// BuildTools makes a directory with the tool plugins only.
func BuildTools(ctx context.Context) (*Binaries, error) {
	return fill(func(b *Binaries) error { return b.addTools(ctx) })
}

// Build makes the three binaries of the project and the tool plugins. Every process builds into a
// directory of its own, so no run replaces the binaries of another.
func Build(ctx context.Context) (*Binaries, error) {
	return fill(func(b *Binaries) error { return errors.Join(b.addOwn(ctx), b.addTools(ctx)) })
}

// fill makes a directory for binaries, which is gone if they cannot be had.
func fill(add func(*Binaries) error) (*Binaries, error) {
	dir, err := os.MkdirTemp("", "latch-bin-")
	if err != nil {
		return nil, fmt.Errorf("make directory for binaries: %w", err)
	}
	b := &Binaries{Dir: dir}
	if err := add(b); err != nil {
		return nil, errors.Join(err, b.Remove())
	}
	return b, nil
}

func (b *Binaries) addOwn(ctx context.Context) error {
	if ready := os.Getenv(BinariesEnv); ready != "" {
		return b.link(ready, "latch", "latchd", "latchctl")
	}
	root, err := moduleRoot(ctx)
	if err != nil {
		return err
	}
	_, err = goTool(ctx, root, nil, "build", "-o", b.Dir+"/", "./cmd/latch", "./cmd/latchd", "./cmd/latchctl")
	return err
}

func (b *Binaries) addTools(ctx context.Context) error {
	var names []string
	for _, plugin := range toolPlugins {
		names = append(names, filepath.Base(plugin))
	}
	if ready := os.Getenv(BinariesEnv); ready != "" && haveAll(ready, names) {
		return b.link(ready, names...)
	}
	root, err := moduleRoot(ctx)
	if err != nil {
		return err
	}
	cache, err := cachedTools(ctx, root)
	if err != nil {
		return err
	}
	return b.link(cache, names...)
}

func (b *Binaries) link(from string, names ...string) error {
	for _, name := range names {
		if err := os.Symlink(filepath.Join(from, name), filepath.Join(b.Dir, name)); err != nil {
			return fmt.Errorf("link ready-made binary: %w", err)
		}
	}
	return nil
}

func haveAll(dir string, names []string) bool {
	return !slices.ContainsFunc(names, func(name string) bool {
		_, err := os.Stat(filepath.Join(dir, name))
		return err != nil
	})
}

// cachedTools installs the tool plugins once per version, below the project's ignored .cache.
func cachedTools(ctx context.Context, root string) (string, error) {
	version, err := goTool(ctx, root, nil, "list", "-m", "-f", "{{.Version}}", toolModule)
	if err != nil {
		return "", err
	}
	version = strings.TrimSpace(version)
	dir := filepath.Join(root, ".cache", "cni-plugins", version)
	var missing []string
	for _, plugin := range toolPlugins {
		if _, err := os.Stat(filepath.Join(dir, filepath.Base(plugin))); err != nil {
			missing = append(missing, toolModule+"/plugins/"+plugin+"@"+version)
		}
	}
	if len(missing) == 0 {
		return dir, nil
	}
	// install with a version resolves the tools' own go.mod, and takes no part in ours.
	_, err = goTool(ctx, root, []string{"GOBIN=" + dir}, append([]string{"install"}, missing...)...)
	return dir, err
}

func moduleRoot(ctx context.Context) (string, error) {
	mod, err := goTool(ctx, "", nil, "env", "GOMOD")
	if err != nil {
		return "", err
	}
	mod = strings.TrimSpace(mod)
	if mod == "" || mod == os.DevNull {
		return "", fmt.Errorf("find module: the working directory is in none")
	}
	return filepath.Dir(mod), nil
}

func goTool(ctx context.Context, dir string, env []string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), env...)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("go %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(stderr.String()))
	}
	return string(out), nil
}
