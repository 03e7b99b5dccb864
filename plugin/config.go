package plugin

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"
	"github.com/containernetworking/cni/pkg/version"

	"github.com/latch-cni/latch/bpf"
	"github.com/latch-cni/latch/shared/attach"
	"github.com/latch-cni/latch/shared/state"
)

// Enforcing modes: what applies to a pod that no policy selects, and to a pod of which nothing is known.
const (
	ModeStandard = "standard"
	ModeStrict   = "strict"
)

// Answers to a pod of which nothing is known, in standard mode.
const (
	UnknownRetry   = "retry"
	UnknownDefault = "default"
)

// DefaultStateDir is where records, locks and node settings are unless the plugin entry says otherwise.
const DefaultStateDir = "/run/latch"

// Config is the plugin's entry in the conflist, completed by <stateDir>/node.json and by defaults, in
// this order.
type Config struct {
	CNIVersion string
	Network    string // name of the network: attachments are collected (GC) per network

	EnforcingMode string          // standard (default) or strict
	PolicyWait    time.Duration   // how long ADD waits for the pod's record; 2s
	UnknownPods   string          // retry (default) or default
	LockTimeout   time.Duration   // how long a lock is waited for; 10s
	AttachMode    attach.Mode     // auto (default), clsact or tcx
	AntiSpoof     bool            // pods send from their own addresses only; false
	FlowTableSize int             // IPv4 flows, if the tables have to be made; 131072
	StateDir      string          // /run/latch
	Bpffs         string          // /sys/fs/bpf
	LogFile       string          // /var/log/latch/latch.log
	LogLevel      slog.Level      // debug, info (default), warn or error
	Disabled      string          // why ADD is refused; empty (default) if it is not
	PrevResult    types.Result    // nil if the runtime gave none
	Valid         *[]attachmentID // of GC; nil if the runtime gave none

	rawPrevResult json.RawMessage
	prevVersion   string       // that rawPrevResult says
	unknown       []unknownKey // of the plugin's entry
	stricter      bool         // the entry says strict, and latchd's rules are of standard mode
}

// attachmentID names an attachment as the specification does.
type attachmentID struct {
	ContainerID string `json:"containerID"`
	IfName      string `json:"ifname"`
}

// netConf is what stdin holds. The keys of node.json are keys of the plugin entry, too.
type netConf struct {
	CNIVersion string          `json:"cniVersion"`
	Name       string          `json:"name"`
	StateDir   string          `json:"stateDir"`
	Disabled   string          `json:"disabled"`
	PrevResult json.RawMessage `json:"prevResult"`
	Valid      json.RawMessage `json:"cni.dev/valid-attachments"`
	state.NodeSettings
}

// parseConfig reads stdin. The Config is useful even with an error: every key that could not be
// understood has its default, so that DEL can go on.
func parseConfig(stdin []byte) (*Config, error) {
	var conf netConf
	var errs []error
	if err := json.Unmarshal(stdin, &conf); err != nil {
		errs = append(errs, fmt.Errorf("decode configuration: %w", wrongType(stdin, err)))
	}
	c := &Config{CNIVersion: conf.CNIVersion, Network: conf.Name, Disabled: conf.Disabled, rawPrevResult: conf.PrevResult}
	c.unknown = unknownKeys(stdin)
	p := parser{}
	c.StateDir = p.path("stateDir", DefaultStateDir, conf.StateDir)
	node, err := state.New(c.StateDir).ReadSettings()
	if err != nil {
		errs = append(errs, err)
	}
	entry := conf.NodeSettings
	c.EnforcingMode = p.oneOf("enforcingMode", entry.EnforcingMode, node.EnforcingMode, ModeStandard, ModeStrict)
	c.stricter = entry.EnforcingMode == ModeStrict && node.EnforcingMode == ModeStandard
	c.UnknownPods = p.oneOf("unknownPods", entry.UnknownPods, node.UnknownPods, UnknownRetry, UnknownDefault)
	c.AttachMode = attach.Mode(p.oneOf("attachMode", entry.AttachMode, node.AttachMode,
		string(attach.ModeAuto), string(attach.ModeClsact), string(attach.ModeTCX)))
	c.AntiSpoof = firstBool(entry.AntiSpoof, node.AntiSpoof)
	c.FlowTableSize = p.number("flowTableSize", bpf.DefaultFlows, bpf.MinFlows, bpf.MaxFlows, entry.FlowTableSize, node.FlowTableSize)
	c.PolicyWait = p.duration("policyWait", 2*time.Second, entry.PolicyWait, node.PolicyWait)
	c.LockTimeout = p.duration("lockTimeout", 10*time.Second, entry.LockTimeout, node.LockTimeout)
	c.Bpffs = p.path("bpffs", "/sys/fs/bpf", entry.Bpffs, node.Bpffs)
	c.LogFile = p.path("logFile", "/var/log/latch/latch.log", entry.LogFile, node.LogFile)
	_ = c.LogLevel.UnmarshalText([]byte(p.oneOf("logLevel", entry.LogLevel, node.LogLevel, "info", "debug", "warn", "error")))
	errs = append(errs, p.errs...)
	errs = append(errs, c.parsePrevResult(conf.PrevResult), c.parseValid(conf.Valid))
	if err := errors.Join(errs...); err != nil {
		return c, types.NewError(types.ErrInvalidNetworkConfig, "invalid configuration: "+oneLine(err), "")
	}
	return c, nil
}

// refused is for what begins anew while the configuration only serves to end what there is: latchd sets
// the key when the configuration that this one was made from is gone.
func (c *Config) refused(code uint) error {
	if c.Disabled == "" {
		return nil
	}
	return types.NewError(code, "latch starts no pods: "+c.Disabled, "")
}

// parsePrevResult accepts the forms in which a result can be missing.
func (c *Config) parsePrevResult(raw json.RawMessage) error {
	if len(raw) == 0 || string(raw) == "null" || isEmptyObject(raw) {
		return nil
	}
	var stated struct {
		CNIVersion string `json:"cniVersion"`
	}
	if err := json.Unmarshal(raw, &stated); err != nil {
		return fmt.Errorf("decode prevResult: %w", wrongType(raw, err))
	}
	c.prevVersion = stated.CNIVersion
	if c.prevVersion == "" { // as results before 1.0.0 may do
		return c.parseUnversioned(raw)
	}
	var err error
	if c.PrevResult, err = version.NewResult(c.CNIVersion, raw); err != nil {
		return fmt.Errorf("could not parse prevResult: %w", wrongType(raw, err))
	}
	return nil
}

// parseUnversioned takes a result that does not say its version for one of the configuration's.
func (c *Config) parseUnversioned(raw json.RawMessage) error {
	conf := types.PluginConf{CNIVersion: c.CNIVersion}
	if err := json.Unmarshal(raw, &conf.RawPrevResult); err != nil {
		return fmt.Errorf("decode prevResult: %w", err)
	}
	if err := version.ParsePrevResult(&conf); err != nil {
		return err
	}
	c.PrevResult = conf.PrevResult
	return nil
}

// isEmptyObject tells whether a JSON value is an object without keys.
func isEmptyObject(raw json.RawMessage) bool {
	inside, ok := bytes.CutPrefix(raw, []byte("{"))
	return ok && len(bytes.TrimSpace(bytes.TrimSuffix(inside, []byte("}")))) == 0
}

// parseValid keeps apart the list that is missing from the list that is empty: taking the first for the
// second would remove every attachment.
func (c *Config) parseValid(raw json.RawMessage) error {
	if raw == nil {
		return nil
	}
	c.Valid = new([]attachmentID)
	if err := json.Unmarshal(raw, c.Valid); err != nil {
		c.Valid = nil
		return fmt.Errorf("decode cni.dev/valid-attachments: %w", wrongType(raw, err))
	}
	return nil
}

// result returns prevResult in the newest form, for reading.
func (c *Config) result() (*types100.Result, error) {
	if c.PrevResult == nil {
		return nil, types.NewError(types.ErrInvalidNetworkConfig,
			"no prevResult: latch has to be chained behind the plugin that makes the pod's interface", "")
	}
	result, err := types100.GetResult(c.PrevResult)
	if err != nil {
		return nil, types.NewError(types.ErrInvalidNetworkConfig, "convert prevResult: "+err.Error(), "")
	}
	return result, nil
}

// parser collects the errors of all keys.
type parser struct{ errs []error }

func (p *parser) fail(key, value, want string) {
	p.errs = append(p.errs, fmt.Errorf("%s: %q is not %s", key, value, want))
}

// oneOf returns the first of entry and node that is set, else the first allowed value.
func (p *parser) oneOf(key, entry, node string, allowed ...string) string {
	value := firstSet(entry, node)
	if value == "" {
		return allowed[0]
	}
	if !slices.Contains(allowed, value) {
		p.fail(key, value, "one of "+strings.Join(allowed, ", "))
		return allowed[0]
	}
	return value
}

// number returns the first of values that is not 0, else the fallback.
func (p *parser) number(key string, fallback, least, most int, values ...int) int {
	value := cmp.Or(append(values, fallback)...)
	if value < least || value > most {
		p.fail(key, strconv.Itoa(value), fmt.Sprintf("a number from %d to %d", least, most))
		return fallback
	}
	return value
}

func (p *parser) duration(key string, fallback time.Duration, values ...string) time.Duration {
	value := firstSet(values...)
	if value == "" {
		return fallback
	}
	d, err := time.ParseDuration(value)
	if err != nil || d < 0 {
		p.fail(key, value, "a duration like 500ms, 2s or 1m30s")
		return fallback
	}
	return d
}

func (p *parser) path(key, fallback string, values ...string) string {
	value := firstSet(values...)
	if value == "" {
		return fallback
	}
	if !filepath.IsAbs(value) {
		p.fail(key, value, "an absolute path")
		return fallback
	}
	return filepath.Clean(value)
}

func firstSet(values ...string) string {
	for _, value := range values {
		if value != "" {
			return value
		}
	}
	return ""
}

// firstBool returns the first that is set, else false.
func firstBool(values ...*bool) bool {
	for _, value := range values {
		if value != nil {
			return *value
		}
	}
	return false
}

// oneLine is for the events of a pod, which show an error on one line.
func oneLine(err error) string { return strings.ReplaceAll(err.Error(), "\n", "; ") }
