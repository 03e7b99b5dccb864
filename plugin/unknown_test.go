package plugin

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/google/go-cmp/cmp"
)

func TestUnknownKeys(t *testing.T) {
	for _, c := range []struct {
		name string
		keys map[string]any
		want []unknownKey
	}{
		{"none", nil, nil},
		{"those of runtimes", map[string]any{"runtimeConfig": 1, "capabilities": 1, "args": 1, "io.kubernetes.cri/x": 1, "cni.dev/valid-attachments": nil}, nil},
		{"in another case, which JSON does not mind", map[string]any{"EnforcingMode": "strict"}, nil},
		{"misspelt", map[string]any{"enforcingmod": "strict", "policy_wait": "1s"},
			[]unknownKey{{"enforcingmod", "enforcingMode"}, {"policy_wait", "policyWait"}}},
		{"the name that another agent gives it", map[string]any{"strictMode": true}, []unknownKey{{"strictMode", ""}}},
	} {
		if diff := cmp.Diff(c.want, unknownKeys(conf(t, "", c.keys)), cmp.AllowUnexported(unknownKey{})); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.name, diff)
		}
	}
}

// ADD goes on, and its log names the key and what may have been meant.
func TestAddWarnsOfUnknownKeys(t *testing.T) {
	log := filepath.Join(t.TempDir(), "latch.log")
	stdin := conf(t, "", map[string]any{"policyWaits": "1s", "logFile": log})
	_ = run("ADD", &skel.CmdArgs{StdinData: stdin}, add) // it has no prevResult, which it finds out later
	raw, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	var first struct{ Level, Key, Nearest string }
	if err := json.NewDecoder(bytes.NewReader(raw)).Decode(&first); err != nil {
		t.Fatal(err)
	}
	if first.Level != "WARN" || first.Key != "policyWaits" || first.Nearest != "policyWait" {
		t.Errorf("the log begins with %+v:\n%s", first, raw)
	}
}
