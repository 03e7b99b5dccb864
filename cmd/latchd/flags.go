package main

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/latch-cni/latch/bpf"
	"github.com/latch-cni/latch/cmd/latchd/announce"
	"github.com/latch-cni/latch/cmd/latchd/install"
	"github.com/latch-cni/latch/shared/attach"
	"github.com/latch-cni/latch/shared/enforce"
)

var errHelp = pflag.ErrHelp

const usageHead = `Follows network policy and keeps this node's kernel objects current. Enforcement does not need it to run.

Usage:
  latchd --policy-dir DIR [flags]      policy from manifests in a directory
  latchd --node-name NAME [flags]      policy from an API server
  latchd install [flags]               put the plugin and its configuration on this node
  latchd uninstall [flags]             take everything of Latch off this node
  latchd --version

Flags:
`

// options are latchd's flags. They are an interface that others script against.
type options struct {
	policyDir     string
	kubeconfig    string
	apiQPS        float32
	apiBurst      int
	kubeEvents    bool // tell of pods and policies by Events
	podCondition  bool
	nodeName      string
	nodeIPs       []netip.Addr
	mode          string
	bpffs         string
	stateDir      string
	attachMode    attach.Mode
	lockTimeout   time.Duration
	policyWait    time.Duration
	unknownPods   string
	antiSpoof     bool
	flowTableSize int
	auditPeriod   time.Duration
	workers       int
	install       install.Config // ConfDir empty: do not follow
	takeOver      bool
	pluginLog     pluginLog
	node          enforce.NodeConfig
	observe       observeOptions
	logLevel      slog.Level
	logFile       string
}

type pluginLog struct{ file, level string }

func parseFlags(args []string) (options, error) {
	o := options{node: enforce.NodeConfig{Timeouts: bpf.DefaultTimeouts()}}
	f := pflag.NewFlagSet("latchd", pflag.ContinueOnError)
	f.SortFlags = false
	f.Usage = func() { fmt.Fprintf(os.Stderr, usageHead+"%s", f.FlagUsages()) }
	f.StringVar(&o.policyDir, "policy-dir", "", "take policy from the manifests in this directory, watched, and not from an API server")
	f.StringVar(&o.kubeconfig, "kubeconfig", "", "how to reach the API server; without it as Kubernetes tells its pods")
	f.Float32Var(&o.apiQPS, "kube-api-qps", 10, "requests a second to the API server")
	f.IntVar(&o.apiBurst, "kube-api-burst", 20, "requests in a row to the API server")
	f.BoolVar(&o.kubeEvents, "kube-events", true, "make Events about pods that are not under policy and policies that cannot be applied, with an API server")
	f.BoolVar(&o.podCondition, "pod-condition", false, "keep the condition "+announce.Condition+" of pods; needs the right to patch pods/status")
	f.StringVar(&o.nodeName, "node-name", os.Getenv("NODE_NAME"), "name of this node, as in spec.nodeName of its pods; default $NODE_NAME, with --policy-dir the host name")
	ips := f.StringArray("node-ip", nil, "address of this node, repeatable, both families; default what its Node object says")
	f.StringVar(&o.mode, "enforcing-mode", modeFromEnv(), "default of pods that no policy selects: standard (allow) or strict (deny); default $"+modeEnv+", or standard")
	f.StringVar(&o.bpffs, "bpffs", "/sys/fs/bpf", "mount point of bpffs")
	f.StringVar(&o.stateDir, "state-dir", "/run/latch", "records and locks")
	mode := f.String("attach-mode", "auto", "how interfaces are attached: auto, clsact or tcx")
	f.DurationVar(&o.lockTimeout, "lock-timeout", 10*time.Second, "bound of the wait for a lock")
	f.DurationVar(&o.policyWait, "policy-wait", 2*time.Second, "how long the plugin waits for a pod's record")
	f.StringVar(&o.unknownPods, "unknown-pods", "retry", "what the plugin does in standard mode when no record comes: retry or default")
	f.DurationVar(&o.auditPeriod, "audit-period", 10*time.Second, "how often the kernel is compared with what it should hold")
	f.IntVar(&o.workers, "workers", 16, "identifiers reconciled at the same time")
	f.StringVar(&o.install.ConfDir, "cni-conf-dir", "", "folder of CNI configurations in which latchd keeps the plugin's place; empty = leave them alone")
	placeFlags(f, &o.install)
	f.BoolVar(&o.takeOver, "take-over", false, "take over from another policy agent: remove its filters and pins once Latch is in force")
	f.StringVar(&o.pluginLog.file, "plugin-log-file", "/var/log/latch/latch.log", "where the plugin logs")
	f.StringVar(&o.pluginLog.level, "plugin-log-level", "info", "of the plugin: debug, info, warn or error")
	f.BoolVar(&o.node.AddressIsNode, "node-by-address", false, "exempt every packet whose source is a node address, also forwarded ones")
	f.BoolVar(&o.node.JudgeToNode, "judge-to-node", false, "judge pods' traffic to their node's addresses by policy")
	f.BoolVar(&o.antiSpoof, "anti-spoof", false, "pods that start or are adopted from now on send from their own addresses only")
	f.IntVar(&o.flowTableSize, "flow-table-size", bpf.DefaultFlows, "IPv4 flows of the node, 96 bytes each, and half as many of IPv6; takes effect while no pod is bound: drain and reboot")
	t := &o.node.Timeouts
	f.DurationVar(&t.TCPSyn, "timeout-tcp-syn", t.TCPSyn, "unanswered SYN")
	f.DurationVar(&t.TCPEstablished, "timeout-tcp-established", t.TCPEstablished, "idle TCP connection")
	f.DurationVar(&t.TCPClosing, "timeout-tcp-closing", t.TCPClosing, "TCP connection after RST or both FIN")
	f.DurationVar(&t.UDP, "timeout-udp", t.UDP, "UDP flow, one way")
	f.DurationVar(&t.UDPAnswered, "timeout-udp-answered", t.UDPAnswered, "UDP flow, answered")
	f.DurationVar(&t.Other, "timeout-other", t.Other, "flow of any other protocol")
	f.DurationVar(&t.Fragment, "timeout-fragment", t.Fragment, "memory of a first fragment")
	f.DurationVar(&t.Grace, "grace", t.Grace, "from a change of policy until a live flow that it denies is cut")
	o.observe.addFlags(f)
	level := f.String("log-level", "info", "debug, info, warn or error")
	f.StringVar(&o.logFile, "log-file", "", "where latchd logs, rotated at 50 MiB; empty = standard error")
	events := f.Bool("policy-event-logs", false, "short for --flow-log: beside --log-file as latch-flows.log, or to stdout without one")
	if err := f.Parse(args); err != nil {
		return o, err
	}
	if *events && o.observe.flowLog.File == "" {
		o.observe.flowLog.File = flowLogBeside(o.logFile)
	}
	errs := []error{noArguments(f.Args())}
	for _, s := range *ips {
		a, err := netip.ParseAddr(s)
		if err != nil {
			errs = append(errs, fmt.Errorf("--node-ip %q: not an IP address", s))
			continue
		}
		o.nodeIPs = append(o.nodeIPs, a.Unmap())
	}
	o.node.Addrs = o.nodeIPs
	o.install.StateDir = o.stateDir
	var err error
	if o.attachMode, err = attach.ParseMode(*mode); err != nil {
		errs = append(errs, fmt.Errorf("--attach-mode: %w", err))
	}
	if err := o.logLevel.UnmarshalText([]byte(*level)); err != nil {
		errs = append(errs, fmt.Errorf("--log-level %q: use debug, info, warn or error", *level))
	}
	errs = append(errs,
		oneOf("--enforcing-mode", o.mode, "standard", "strict"),
		oneOf("--unknown-pods", o.unknownPods, "retry", "default"),
		oneOf("--plugin-log-level", o.pluginLog.level, "debug", "info", "warn", "error"),
		positive("--audit-period", o.auditPeriod), positive("--lock-timeout", o.lockTimeout),
		notNegative("--policy-wait", o.policyWait), notNegative("--grace", t.Grace),
		positive("--timeout-tcp-syn", t.TCPSyn), positive("--timeout-tcp-established", t.TCPEstablished),
		positive("--timeout-tcp-closing", t.TCPClosing), positive("--timeout-udp", t.UDP),
		positive("--timeout-udp-answered", t.UDPAnswered), positive("--timeout-other", t.Other),
		positive("--timeout-fragment", t.Fragment))
	if o.workers < 1 {
		errs = append(errs, fmt.Errorf("--workers %d: must be at least 1", o.workers))
	}
	if o.flowTableSize < bpf.MinFlows || o.flowTableSize > bpf.MaxFlows {
		errs = append(errs, fmt.Errorf("--flow-table-size %d: must be from %d to %d", o.flowTableSize, bpf.MinFlows, bpf.MaxFlows))
	}
	for flag, path := range map[string]string{"--bpffs": o.bpffs, "--state-dir": o.stateDir, "--plugin-log-file": cmp.Or(o.pluginLog.file, "/")} {
		if !filepath.IsAbs(path) { // the plugin uses it, in another working directory
			errs = append(errs, fmt.Errorf("%s %q: must be an absolute path", flag, path))
		}
	}
	errs = append(errs, o.checkSource(), o.checkPlace(), o.observe.check(o.nodeName, &o.node))
	return o, errors.Join(errs...)
}

// flowLogBeside is where verdicts are logged when only their logging was asked for.
func flowLogBeside(logFile string) string {
	if logFile == "" {
		return "stdout"
	}
	return filepath.Join(filepath.Dir(logFile), "latch-flows.log")
}

// modeEnv is where the VPC CNI's own manifests set the mode.
const modeEnv = "NETWORK_POLICY_ENFORCING_MODE"

func modeFromEnv() string {
	if mode := os.Getenv(modeEnv); mode != "" {
		return strings.ToLower(mode)
	}
	return "standard"
}

// checkSource completes what says where policy comes from. Whether there is an API server is found out
// later.
func (o *options) checkSource() error {
	switch {
	case o.policyDir != "" && o.kubeconfig != "":
		return errors.New("--policy-dir and --kubeconfig: only one of them can say where policy comes from")
	case o.policyDir != "" && o.podCondition:
		return errors.New("--pod-condition needs an API server, and not --policy-dir")
	case o.policyDir != "" && o.nodeName == "":
		o.nodeName, _ = os.Hostname()
	case o.policyDir == "" && o.nodeName == "":
		return errors.New("--node-name is needed with an API server: it says which pods are this node's")
	}
	o.node.KeepAddrs = o.policyDir == "" && len(o.nodeIPs) == 0
	return nil
}

// checkPlace checks what is said of the CNI configuration.
func (o *options) checkPlace() error {
	c := o.install
	if c.ConfDir == "" && (c.InPlace || c.Primary != "" || c.Name != install.DefaultName) {
		return errors.New("--in-place, --primary and --conflist-name need --cni-conf-dir: without it latchd leaves the CNI configuration alone")
	}
	return c.Check()
}

func noArguments(args []string) error {
	if len(args) == 0 {
		return nil
	}
	return fmt.Errorf("unexpected argument %q", args[0])
}

func oneOf(flag, value string, allowed ...string) error {
	for _, a := range allowed {
		if value == a {
			return nil
		}
	}
	return fmt.Errorf("%s %q: use one of %q", flag, value, allowed)
}

func positive(flag string, d time.Duration) error {
	if d > 0 {
		return nil
	}
	return fmt.Errorf("%s %s: must be more than zero", flag, d)
}

func notNegative(flag string, d time.Duration) error {
	if d >= 0 {
		return nil
	}
	return fmt.Errorf("%s %s: must not be negative", flag, d)
}

// notHere are those addresses that no interface of this node has. That can be meant, where the node is known
// by an address that others translate.
func notHere(ips []netip.Addr) ([]netip.Addr, error) {
	have, err := net.InterfaceAddrs()
	if err != nil {
		return nil, fmt.Errorf("list the node's addresses: %w", err)
	}
	return slices.DeleteFunc(slices.Clone(ips), func(ip netip.Addr) bool {
		return slices.ContainsFunc(have, func(a net.Addr) bool {
			p, err := netip.ParsePrefix(a.String())
			return err == nil && p.Addr() == ip
		})
	}), nil
}
