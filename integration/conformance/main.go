// Command conformance plays conformance scenarios against the binaries of this tree and prints a
// table: go run ./integration/conformance [flags] FILE|DIR...
//
// It needs root, makes everything it uses in network namespaces of its own, and removes it at the end.
// The exit code is 0 if every verdict is as expected, 1 if one is not, 2 if scenarios could not be
// played at all or something was left over.
//
// What a scenario is, is in package scenario; how it is played, in package runner.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"regexp"
	"runtime"
	"syscall"
	"time"

	"github.com/latch-cni/latch/integration/harness"
	"github.com/latch-cni/latch/integration/runner"
	"github.com/latch-cni/latch/integration/scenario"
)

func main() { os.Exit(run()) }

func run() int {
	var opts runner.Options
	out := printer{to: os.Stdout}
	only := flag.String("run", "", "play only scenarios whose id matches this regular `expression`")
	flag.IntVar(&opts.Parallel, "parallel", 4*runtime.NumCPU(), "number of nodes that play at the same time; they wait most of the time")
	flag.DurationVar(&opts.Settle, "settle", 700*time.Millisecond, "judge no step earlier than this after its feed")
	flag.DurationVar(&opts.Patience, "patience", 8*time.Second, "a step that is not right by then is wrong")
	flag.BoolVar(&opts.Spread, "spread", false, "feed one file per object instead of one file per step")
	flag.Uint64Var(&opts.Shuffle, "shuffle", 0, "play in a random order with this `seed`; with -parallel 1 one latchd meets them all in a row")
	flag.BoolVar(&opts.Keep, "keep", false, "leave logs and state of the nodes behind")
	flag.BoolVar(&out.verbose, "v", false, "print every step, and every wrong verdict")
	flag.BoolVar(&out.json, "json", false, "print one JSON object per scenario instead of the table")
	flag.Usage = func() {
		fmt.Fprintln(flag.CommandLine.Output(), "usage: conformance [flags] FILE|DIR...")
		flag.PrintDefaults()
	}
	flag.Parse()
	if flag.NArg() == 0 {
		flag.Usage()
		return 2
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := play(ctx, opts, *only, flag.Args(), &out); err != nil {
		fmt.Fprintln(os.Stderr, "conformance:", err)
		return 2
	}
	if out.failed > 0 {
		return 1
	}
	return 0
}

func play(ctx context.Context, opts runner.Options, only string, paths []string, out *printer) (err error) {
	match, err := regexp.Compile(only)
	if err != nil {
		return err
	}
	all, err := scenario.LoadAll(paths...)
	if err != nil {
		return err
	}
	var chosen []*scenario.Scenario
	for _, s := range all {
		if match.MatchString(s.ID) {
			chosen = append(chosen, s)
		}
	}
	if len(chosen) == 0 {
		return fmt.Errorf("no scenario matches %q", only)
	}
	if opts.Binaries, err = harness.Build(ctx); err != nil {
		return err
	}
	defer func() { _ = opts.Binaries.Remove() }()
	opts.Explain = runner.Explain
	out.begin(len(chosen))
	err = runner.Run(ctx, opts, chosen, out.scenario)
	out.end()
	return err
}
