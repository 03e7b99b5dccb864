// bench measures what Latch costs and prints it beside what others cost: the whole process of ADD beside
// the plugins of containernetworking/plugins and an empty Go program, then the benchmarks of the data
// path and of the policy compiler.
//
// Times of one machine mean nothing on another, and machines are noisy: everything that is compared runs
// once in each round, in a random order, and what counts is the ratio. A target that is missed is shown,
// and is no failure.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"

	"github.com/latch-cni/latch/integration/harness"
)

func main() {
	rounds := flag.Int("rounds", 60, "rounds of the comparison of plugins")
	bin := flag.String("bin", "bin", "folder with latch, latchd and latchctl as released; empty: build them")
	plugins := flag.Bool("plugins", true, "compare plugins")
	kernel := flag.Bool("go", true, "run the Go benchmarks")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, *rounds, *bin, *plugins, *kernel); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, rounds int, bin string, plugins, kernel bool) error {
	if os.Geteuid() != 0 {
		return errors.New("needs root: network namespaces, bpf")
	}
	if plugins {
		if err := comparePlugins(ctx, rounds, bin); err != nil {
			return err
		}
	}
	if !kernel {
		return nil
	}
	cmd := exec.CommandContext(ctx, "go", "test", "-run", "^$", "-bench", ".", "./bpf", "./shared/policy")
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	return cmd.Run()
}

// comparePlugins makes a node with one pod and runs each plugin's ADD on it, round after round.
func comparePlugins(ctx context.Context, rounds int, bin string) (err error) {
	if bin != "" {
		if err := useBinaries(bin); err != nil {
			return err
		}
	}
	b, err := harness.Build(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.Remove()) }()
	if err := errors.Join(buildEmpty(ctx, b.Dir), install(b.Dir)); err != nil {
		return err
	}
	if err := harness.UseMemory(); err != nil {
		return err
	}
	g, err := newGround(ctx, b)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, g.close(ctx)) }()
	contestants := g.contestants()
	fmt.Printf("ADD: the whole process, from fork to exit, %d rounds\n\n", rounds)
	for range rounds {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := g.round(contestants); err != nil {
			return err
		}
	}
	printTable(contestants)
	return nil
}
