package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/pflag"

	"github.com/latch-cni/latch/cmd/latchd/install"
)

// placeFlags are those that say what our place in the CNI configuration is.
func placeFlags(f *pflag.FlagSet, c *install.Config) {
	f.StringVar(&c.Name, "conflist-name", install.DefaultName, "name of our own configuration; it must sort before the primary CNI's, and end in .conflist")
	f.StringVar(&c.Primary, "primary", "", "name of the primary CNI's configuration; default the first that is not ours")
	f.BoolVar(&c.InPlace, "in-place", false, "put latch into the primary's configuration itself, and not into one of our own")
}

// place runs latchd install or latchd uninstall.
func place(command string, args []string) int {
	var o install.Options
	f := pflag.NewFlagSet("latchd "+command, pflag.ContinueOnError)
	f.SortFlags = false
	f.StringVar(&o.ConfDir, "cni-conf-dir", install.DefaultConfDir, "folder of CNI configurations")
	f.StringVar(&o.BinDir, "cni-bin-dir", install.DefaultBinDir, "folder of CNI plugins")
	f.StringVar(&o.Bpffs, "bpffs", "/sys/fs/bpf", "mount point of bpffs")
	f.StringVar(&o.StateDir, "state-dir", install.DefaultStateDir, "records and locks")
	var wait time.Duration
	var stay bool
	if command == "install" {
		placeFlags(f, &o.Config)
		f.StringVar(&o.Plugin, "plugin", "", "binary of the plugin; default the one beside latchd")
		f.BoolVar(&o.PrimaryLater, "primary-later", false, "the --primary may be installed after Latch: ADD is refused until it comes, although there are others")
		f.BoolVar(&o.TakeOver, "take-over", false, "install although another policy agent is in force; latchd takes over from it")
	} else {
		f.StringVar(&o.Name, "conflist-name", install.DefaultName, "name of our own configuration, if an earlier build wrote it that did not note in it that it is ours")
		f.DurationVar(&wait, "timeout", time.Minute, "give up after this")
		f.BoolVar(&stay, "stay", false, "do not end when done, as the container of a DaemonSet must not")
	}
	err := f.Parse(args)
	if err == nil {
		err = errors.Join(noArguments(f.Args()), o.Check())
	}
	if errors.Is(err, errHelp) {
		return 0
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "latchd:", err)
		return 2
	}
	o.Log = slog.New(slog.NewJSONHandler(os.Stderr, nil))
	if command == "install" {
		if err = install.Install(o); errors.Is(err, fs.ErrPermission) {
			err = errors.Join(err, lacking(toLook))
		}
	} else if err = lacking(toAttach, toOpen); err == nil {
		err = uninstall(o, wait, stay)
	}
	if err != nil {
		o.Log.Error(command, "error", err)
		return 1
	}
	return 0
}

func uninstall(o install.Options, wait time.Duration, stay bool) error {
	signals, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	ctx, cancel := context.WithTimeout(signals, wait)
	defer cancel()
	if err := install.Uninstall(ctx, o); err != nil {
		return err
	}
	o.Log.Info("nothing of Latch is left on this node but its logs")
	if stay {
		<-signals.Done()
	}
	return nil
}
