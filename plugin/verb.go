package plugin

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"
	"github.com/containernetworking/cni/pkg/version"

	"github.com/latch-cni/latch/bpf"
	"github.com/latch-cni/latch/shared/enforce"
	"github.com/latch-cni/latch/shared/lock"
	"github.com/latch-cni/latch/shared/state"
)

// Funcs are the verbs, for skel.
func Funcs() skel.CNIFuncs {
	return skel.CNIFuncs{
		Add:    func(args *skel.CmdArgs) error { return run("ADD", args, add) },
		Del:    func(args *skel.CmdArgs) error { return run("DEL", args, del) },
		Check:  func(args *skel.CmdArgs) error { return run("CHECK", args, check) },
		GC:     func(args *skel.CmdArgs) error { return run("GC", args, gc) },
		Status: func(args *skel.CmdArgs) error { return run("STATUS", args, status) },
	}
}

// Versions are the versions of the specification that the plugin speaks.
func Versions() version.PluginInfo {
	return version.PluginSupports("0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0")
}

// call is one invocation by the runtime.
type call struct {
	*skel.CmdArgs
	conf    *Config
	confErr error // what is wrong with the configuration: DEL goes on with defaults
	log     *slog.Logger
}

// run parses the configuration, runs the verb and turns its error into one of the specification. What
// the verb did is one line of the log.
func run(verb string, args *skel.CmdArgs, do func(context.Context, *call) error) error {
	start := time.Now()
	conf, confErr := parseConfig(args.StdinData)
	log, closeLog := openLog(conf.LogFile, conf.LogLevel)
	defer closeLog()
	log = log.With("verb", verb, "container", args.ContainerID, "ifname", args.IfName)
	if pod, err := parsePodArgs(args.Args); err == nil {
		log = log.With("pod", pod.String())
	}
	err := do(context.Background(), &call{CmdArgs: args, conf: conf, confErr: confErr, log: log})
	took := slog.Duration("took", time.Since(start))
	if err != nil {
		log.Error("failed", "err", err, took)
		said := cniError(err)
		if verb == "ADD" {
			tellWatcher(conf, args, said, log)
		}
		return said
	}
	log.Log(context.Background(), levelOf(verb), "done", took)
	return nil
}

// tellWatcher leaves word of a failed ADD for latchd, which can tell the cluster.
func tellWatcher(conf *Config, args *skel.CmdArgs, said *types.Error, log *slog.Logger) {
	pod, err := parsePodArgs(args.Args)
	if err != nil {
		return // of no pod
	}
	err = state.New(conf.StateDir).WriteFailure(state.Failure{PodNamespace: pod.Namespace, PodName: pod.Name, PodUID: pod.UID,
		ContainerID: args.ContainerID, Code: said.Code, Message: said.Msg, At: time.Now()})
	if err != nil {
		log.Warn("latchd is not told", "err", err)
	}
}

// levelOf keeps the verbs that runtimes call every few seconds out of the log.
func levelOf(verb string) slog.Level {
	if verb == "STATUS" || verb == "CHECK" {
		return slog.LevelDebug
	}
	return slog.LevelInfo
}

// cniError chooses the code. Errors that already have one keep it.
func cniError(err error) *types.Error {
	if cni, ok := err.(*types.Error); ok {
		return cni
	}
	code := types.ErrInternal
	var cni *types.Error
	var timeout *lock.TimeoutError
	switch {
	case errors.As(err, &cni):
		code = cni.Code
	case errors.As(err, &timeout):
		code = types.ErrTryAgainLater
	}
	return types.NewError(code, oneLine(err), "")
}

// enforcer is the configuration of the write path.
func (c *call) enforcer() enforce.Config {
	return enforce.Config{
		Bpffs:       c.conf.Bpffs,
		StateDir:    c.conf.StateDir,
		AttachMode:  c.conf.AttachMode,
		LockTimeout: c.conf.LockTimeout,
		BindOnly:    true,
		Sizes:       bpf.FlowTables(uint32(c.conf.FlowTableSize)),
		Log:         c.log,
	}
}
