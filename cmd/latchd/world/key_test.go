package world

import (
	"fmt"
	"testing"

	"github.com/latch-cni/latch/shared/policy"
)

// Different inputs have different keys: compiled rules are remembered by them, so that one key for two
// inputs gives a pod the rules of another one.
func TestKeysDiffer(t *testing.T) {
	inputs := map[string]string{}
	check := func(what string, parts ...func(*policy.Input, []byte) []byte) {
		var in policy.Input
		var key []byte
		for _, part := range parts {
			key = part(&in, key)
		}
		if other, taken := inputs[string(key)]; taken {
			t.Fatalf("%s and %s have the key %q", other, what, key)
		}
		inputs[string(key)] = what
	}
	part := func(version uint64, mask [2]bool) func(*policy.Input, []byte) []byte {
		c := &content{version: version, policy: policy.Policy{
			Ref: policy.PolicyRef{Kind: "NetworkPolicy", Namespace: "t1", Name: "p"}, Isolates: [2]bool{true, true},
		}}
		return func(in *policy.Input, key []byte) []byte { return add(in, key, c, mask) }
	}
	masks := [][2]bool{{}, {true, false}, {false, true}, {true, true}}
	for version := uint64(1); version <= 36*36*36; version++ { // all of up to three digits, each masked in all ways
		for _, m := range masks {
			check(fmt.Sprint(version, m), part(version, m))
		}
	}
	for a := uint64(1); a <= 80; a++ {
		for b := a + 1; b <= 80; b++ {
			for _, m := range masks {
				for _, n := range masks {
					check(fmt.Sprint(a, m, b, n), part(a, m), part(b, n))
				}
			}
		}
	}
}
