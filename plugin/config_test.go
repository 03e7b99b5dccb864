package plugin

import (
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/containernetworking/cni/pkg/types"
	"github.com/google/go-cmp/cmp"

	"github.com/latch-cni/latch/shared/attach"
)

// conf makes stdin: a plugin entry with these keys and a state folder, which may hold node.json.
func conf(t *testing.T, nodeJSON string, keys map[string]any) []byte {
	t.Helper()
	all := map[string]any{"cniVersion": "1.0.0", "name": "pods", "type": "latch", "stateDir": t.TempDir()}
	for key, value := range keys {
		all[key] = value
	}
	if nodeJSON != "" {
		if err := os.WriteFile(filepath.Join(all["stateDir"].(string), "node.json"), []byte(nodeJSON), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	stdin, err := json.Marshal(all)
	if err != nil {
		t.Fatal(err)
	}
	return stdin
}

func TestParseConfigPrecedence(t *testing.T) {
	const node = `{"enforcingMode":"strict","policyWait":"7s","unknownPods":"default","lockTimeout":"1m30s",
		"attachMode":"tcx","antiSpoof":true,"flowTableSize":2048,"bpffs":"/node/bpf","logFile":"/node/log","logLevel":"debug","future":1}`
	defaults := Config{
		CNIVersion: "1.0.0", Network: "pods", EnforcingMode: ModeStandard, PolicyWait: 2 * time.Second,
		UnknownPods: UnknownRetry, LockTimeout: 10 * time.Second, AttachMode: attach.ModeAuto,
		FlowTableSize: 131072, Bpffs: "/sys/fs/bpf", LogFile: "/var/log/latch/latch.log", LogLevel: slog.LevelInfo,
	}
	fromNode := defaults
	fromNode.EnforcingMode, fromNode.PolicyWait, fromNode.UnknownPods = ModeStrict, 7*time.Second, UnknownDefault
	fromNode.LockTimeout, fromNode.AttachMode, fromNode.Bpffs = 90*time.Second, attach.ModeTCX, "/node/bpf"
	fromNode.LogFile, fromNode.LogLevel = "/node/log", slog.LevelDebug
	fromNode.AntiSpoof, fromNode.FlowTableSize = true, 2048
	fromEntry := fromNode
	fromEntry.AntiSpoof, fromEntry.FlowTableSize = false, 4096
	fromEntry.EnforcingMode, fromEntry.PolicyWait, fromEntry.UnknownPods = ModeStandard, 0, UnknownRetry
	fromEntry.LockTimeout, fromEntry.AttachMode, fromEntry.Bpffs = 300*time.Millisecond, attach.ModeClsact, "/entry/bpf"
	fromEntry.LogFile, fromEntry.LogLevel = "/entry/log", slog.LevelError
	one := fromNode
	one.PolicyWait = time.Second

	cases := []struct {
		name string
		node string
		keys map[string]any
		want Config
	}{
		{"defaults", "", nil, defaults},
		{"node settings", node, nil, fromNode},
		{"plugin entry", node, map[string]any{
			"enforcingMode": "standard", "policyWait": "0", "unknownPods": "retry", "lockTimeout": "300ms",
			"attachMode": "clsact", "antiSpoof": false, "flowTableSize": 4096, "bpffs": "/entry/bpf/", "logFile": "/entry/log", "logLevel": "error"}, fromEntry},
		{"one key of the plugin entry", node, map[string]any{"policyWait": "1s"}, one},
		{"keys of others", "", map[string]any{"runtimeConfig": map[string]any{"x": 1}, "ipam": map[string]any{}, "prevResult": nil}, defaults},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			got, err := parseConfig(conf(t, c.node, c.keys))
			if err != nil {
				t.Fatal(err)
			}
			got.StateDir, got.rawPrevResult = "", nil
			if diff := cmp.Diff(c.want, *got, cmp.AllowUnexported(Config{})); diff != "" {
				t.Errorf("config (-want +got):\n%s", diff)
			}
		})
	}
}

func TestParseConfigNamesEveryMistake(t *testing.T) {
	_, err := parseConfig(conf(t, `{"attachMode":"xdp"}`, map[string]any{
		"enforcingMode": "Strict", "policyWait": "2", "unknownPods": "allow", "lockTimeout": "-1s",
		"bpffs": "sys/fs/bpf", "logFile": "latch.log", "logLevel": "trace", "flowTableSize": 1}))
	wantCode(t, err, types.ErrInvalidNetworkConfig,
		`enforcingMode: "Strict" is not one of standard, strict`,
		`policyWait: "2" is not a duration like`,
		`unknownPods: "allow" is not one of retry, default`,
		`lockTimeout: "-1s" is not a duration like`,
		`attachMode: "xdp" is not one of auto, clsact, tcx`,
		`flowTableSize: "1" is not a number from 1024 to 4194304`,
		`bpffs: "sys/fs/bpf" is not an absolute path`,
		`logFile: "latch.log" is not an absolute path`,
		`logLevel: "trace" is not one of info, debug, warn, error`)

	_, err = parseConfig(conf(t, `{"attachMode":`, nil))
	wantCode(t, err, types.ErrInvalidNetworkConfig, "node.json")
	_, err = parseConfig(conf(t, "", map[string]any{"policyWait": 2}))
	wantCode(t, err, types.ErrInvalidNetworkConfig, "policyWait")
	_, err = parseConfig([]byte(`{"cniVersion":"1.0.0","name":"pods","stateDir":"run/latch"}`))
	wantCode(t, err, types.ErrInvalidNetworkConfig, `stateDir: "run/latch" is not an absolute path`)
}

// DEL goes on with what could be understood.
func TestParseConfigIsUsefulInSpiteOfMistakes(t *testing.T) {
	stdin := conf(t, "", map[string]any{"bpffs": "/b", "lockTimeout": "soon", "policyWait": 3, "prevResult": ""})
	got, err := parseConfig(stdin)
	wantCode(t, err, types.ErrInvalidNetworkConfig)
	if got.Bpffs != "/b" || got.LockTimeout != 10*time.Second || got.StateDir == DefaultStateDir || got.Network != "pods" {
		t.Errorf("config %+v lost what was right", got)
	}
}

func TestParsePrevResult(t *testing.T) {
	full := map[string]any{
		"interfaces": []any{map[string]any{"name": "eni1"}, map[string]any{"name": "eth0", "sandbox": "/run/netns/x"}},
		"ips":        []any{map[string]any{"version": "4", "interface": 1, "address": "10.0.0.2/32"}},
	}
	for _, v := range Versions().SupportedVersions() {
		for _, stated := range []bool{true, false} {
			prev := map[string]any{"interfaces": full["interfaces"], "ips": full["ips"]}
			if stated {
				prev["cniVersion"] = v
			}
			got, err := parseConfig(conf(t, "", map[string]any{"cniVersion": v, "prevResult": prev}))
			if err != nil {
				t.Fatalf("version %s, stated %t: %v", v, stated, err)
			}
			result, err := got.result()
			if err != nil {
				t.Fatalf("version %s, stated %t: %v", v, stated, err)
			}
			if len(result.Interfaces) != 2 || len(result.IPs) != 1 || *result.IPs[0].Interface != 1 {
				t.Errorf("version %s, stated %t: result %v", v, stated, result)
			}
		}
	}
	for _, missing := range []any{nil, map[string]any{}} {
		got, err := parseConfig(conf(t, "", map[string]any{"prevResult": missing}))
		if err != nil {
			t.Fatalf("prevResult %v: %v", missing, err)
		}
		_, err = got.result()
		wantCode(t, err, types.ErrInvalidNetworkConfig, "no prevResult", "chained")
	}
	for _, broken := range []any{"", []any{}, map[string]any{"ips": "x"}, map[string]any{"cniVersion": "9.9"}} {
		_, err := parseConfig(conf(t, "", map[string]any{"prevResult": broken}))
		wantCode(t, err, types.ErrInvalidNetworkConfig, "prevResult")
	}
}

func TestParseValidAttachments(t *testing.T) {
	const key = "cni.dev/valid-attachments"
	cases := []struct {
		name string
		keys map[string]any
		want *[]attachmentID
	}{
		{"no list", nil, nil},
		{"null is an empty list", map[string]any{key: nil}, new([]attachmentID)},
		{"empty list", map[string]any{key: []any{}}, &[]attachmentID{}},
		{"two", map[string]any{key: []types.GCAttachment{{ContainerID: "a", IfName: "eth0"}, {ContainerID: "b", IfName: "net1"}}},
			&[]attachmentID{{"a", "eth0"}, {"b", "net1"}}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			got, err := parseConfig(conf(t, "", c.keys))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, got.Valid); diff != "" {
				t.Errorf("valid attachments (-want +got):\n%s", diff)
			}
		})
	}
	_, err := parseConfig(conf(t, "", map[string]any{key: "all"}))
	wantCode(t, err, types.ErrInvalidNetworkConfig, key)
}
