// Command soak is the reliability harness: go run ./integration/soak -seed N -length D -report FILE
//
// It plays races, crashes, damages and loads on nodes of its own, in network namespaces, with the
// binaries of this tree, and prints what it measured. It needs root and removes everything that it makes.
// The exit code is 0 when every promise held, 1 when one did not, 2 when it could not be played.
package main

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"regexp"
	"syscall"
	"time"

	"github.com/latch-cni/latch/integration/harness"
	"github.com/latch-cni/latch/integration/soak/crash"
)

func main() {
	crash.Helper()
	os.Exit(run())
}

func run() int {
	var o options
	flag.Uint64Var(&o.Seed, "seed", uint64(time.Now().UnixNano()), "of everything that is random")
	flag.DurationVar(&o.Length, "length", 2*time.Minute, "of the whole run; every play gets its share")
	only := flag.String("only", "", "play only these, comma separated: damage, upgrade, crash, race, capacity, overload")
	match := flag.String("match", "", "play only those damages and loads whose name matches this `expression`")
	flag.IntVar(&o.Parallel, "parallel", 200, "pods on their way at the same time in the race")
	flag.DurationVar(&o.Period, "period", 10*time.Millisecond, "between two changes of each of the race's five policies")
	report := flag.String("report", "", "write the figures as JSON to this `file`")
	verbose := flag.Bool("v", false, "log more")
	flag.Parse()
	if flag.NArg() > 0 {
		flag.Usage()
		return 2
	}
	if *verbose {
		o.Log = slog.New(slog.NewTextHandler(os.Stderr, nil))
	}
	var err error
	if o.Match, err = regexp.Compile(*match); err != nil {
		fmt.Fprintln(os.Stderr, "soak:", err)
		return 2
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := harness.UseMemory(); err != nil {
		fmt.Fprintln(os.Stderr, "soak:", err)
		return 2
	}
	bin, err := harness.Build(ctx)
	if err != nil {
		fmt.Fprintln(os.Stderr, "soak:", err)
		return 2
	}
	defer func() { _ = bin.Remove() }()
	if playsOf(*only, "upgrade") {
		if err := bin.BuildVariants(ctx); err != nil {
			fmt.Fprintln(os.Stderr, "soak:", err)
			return 2
		}
	}
	o.Binaries = bin
	r := newReport(o.Seed, os.Stdout)
	err = playAll(ctx, o, *only, r)
	r.end(err)
	if *report != "" {
		if err := r.write(*report); err != nil {
			fmt.Fprintln(os.Stderr, "soak:", err)
			return 2
		}
	}
	switch {
	case err != nil:
		fmt.Fprintln(os.Stderr, "soak:", err)
		return 2
	case r.Broken > 0:
		return 1
	}
	return 0
}
