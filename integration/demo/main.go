// Command demo shows what Latch does, end to end, on this machine: go run ./integration/demo -bin bin
//
// It makes a node in a network namespace, connects three pods through a real chain of CNI plugins run by
// libcni, has latchd follow a directory of manifests, and asks with real packets who reaches whom:
// before policy, under conf/samples/shop.yaml, and after an edit of it. Then a pod is born under policy
// while senders are at work, and latchd is killed under traffic.
//
// It needs root, asserts everything that it prints, and leaves nothing behind. The exit code is 0 if
// everything was as it should be, 1 if not, 2 if it could not be shown at all.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/latch-cni/latch/integration/harness"
)

func main() { os.Exit(run()) }

func run() int {
	bin := flag.String("bin", "", "`directory` with latch, latchd and latchctl; built when empty")
	policy := flag.String("policy", "conf/samples/shop.yaml", "`file` with the policies of the shop")
	keep := flag.Bool("keep", false, "leave logs and state behind")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if os.Geteuid() != 0 {
		fmt.Fprintln(os.Stderr, "demo: it makes network namespaces and loads BPF programs: run it as root")
		return 2
	}
	begin := time.Now()
	d := &demo{out: newPrinter(os.Stdout)}
	if err := d.play(ctx, *bin, *policy, *keep); err != nil {
		fmt.Fprintf(os.Stderr, "\ndemo: %v\n", err)
		return 2
	}
	return d.out.verdict(time.Since(begin))
}

// play sets the stage, plays the story, and clears the stage whatever happened.
func (d *demo) play(ctx context.Context, bin, policy string, keep bool) (err error) {
	sample, err := os.ReadFile(policy)
	if err != nil {
		return err
	}
	if bin != "" {
		if bin, err = filepath.Abs(bin); err != nil {
			return err
		}
		if err := os.Setenv(harness.BinariesEnv, bin); err != nil {
			return err
		}
	}
	binaries, err := harness.Build(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, binaries.Remove()) }()
	d.file, d.sample = policy, sample
	d.node, err = harness.NewNode(harness.Config{Name: "demo", Addrs: []address{nodeAddr}, HostLocal: podAddrs, Binaries: binaries, Keep: keep})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.clear(err == nil, ctx.Err() == nil)) }()
	return d.story(ctx)
}
