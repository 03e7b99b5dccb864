package harness

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Variants of the project's binaries, for tests of upgrades.
const (
	Previous   = "previous"   // of the commit before this one
	Other      = "latchother" // of this tree, with other programs of the same meaning
	NextLayout = "latchnext"  // of this tree, with the next layout of pins
)

// ErrNoHistory says that the commit before this one is not there: a shallow clone, or no clone at all.
var ErrNoHistory = errors.New("no commit before this one")

// Variant is another build that BuildVariant has made.
func (b *Binaries) Variant(name string) *Binaries { return &Binaries{Dir: filepath.Join(b.Dir, name)} }

// HasVariant tells whether it has been built.
func (b *Binaries) HasVariant(name string) bool {
	_, err := os.Stat(b.Variant(name).Latchd())
	return err == nil
}

// BuildVariants makes all of them. Without history there is no Previous.
func (b *Binaries) BuildVariants(ctx context.Context) error {
	for _, name := range []string{Previous, Other, NextLayout} {
		if err := b.BuildVariant(ctx, name); err != nil && !errors.Is(err, ErrNoHistory) {
			return err
		}
	}
	return nil
}

// BuildVariant makes one variant. Its folder holds none of the tools.
func (b *Binaries) BuildVariant(ctx context.Context, name string) error {
	root, err := moduleRoot(ctx)
	if err != nil {
		return err
	}
	// As make builds: packages that are the same need not be compiled again.
	args := []string{"build", "-trimpath", "-ldflags", "-s -w", "-o", b.Variant(name).Dir + "/"}
	if name != Previous {
		args = append(args, "-tags", name)
	} else {
		dir, err := os.MkdirTemp("", "latch-previous-")
		if err != nil {
			return fmt.Errorf("make directory for sources: %w", err)
		}
		defer os.RemoveAll(dir)
		if err := checkOut(ctx, root, "HEAD~1", dir); err != nil {
			return err
		}
		root = dir
	}
	_, err = goTool(ctx, root, []string{"CGO_ENABLED=0"}, append(args, "./cmd/latch", "./cmd/latchd", "./cmd/latchctl")...)
	if err != nil {
		return fmt.Errorf("build variant %s: %w", name, err)
	}
	return nil
}

// checkOut writes the tree of a commit into a folder.
func checkOut(ctx context.Context, root, commit, dir string) error {
	git := func(args ...string) *exec.Cmd {
		// The owner of a checkout in a container may be another one.
		return exec.CommandContext(ctx, "git", append([]string{"-c", "safe.directory=*", "-C", root}, args...)...)
	}
	if err := git("rev-parse", "--quiet", "--verify", commit+"^{commit}").Run(); err != nil {
		return fmt.Errorf("%w: %s: %w", ErrNoHistory, commit, err)
	}
	archive := filepath.Join(dir, ".tar")
	for _, cmd := range []*exec.Cmd{
		git("archive", "--format=tar", "-o", archive, commit),
		exec.CommandContext(ctx, "tar", "-x", "-C", dir, "-f", archive),
	} {
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("check out %s: %w: %s", commit, err, strings.TrimSpace(string(out)))
		}
	}
	return os.Remove(archive)
}
