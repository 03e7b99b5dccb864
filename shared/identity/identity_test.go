package identity

import (
	"encoding/binary"
	"maps"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestKeysAreFixedLengthHex(t *testing.T) {
	keys := map[string]string{
		"labels":            string(Of("ns", map[string]string{"app": "a"})),
		"no labels":         string(Of("ns", nil)),
		"empty":             string(Of("", nil)),
		"name with dots":    string(OfName("ns", "a.b.c-1")),
		"pod":               PodKey("ns", "a.b"),
		"attachment":        AttachmentKey("c1", "eth0"),
		"very long":         string(OfName(strings.Repeat("n", 1000), strings.Repeat("p", 1000))),
		"not valid unicode": string(OfName("\xff\x00", "/../")),
	}
	for name, key := range keys {
		if _, err := Parse(key); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Both writers derive the identifier on their own and old records carry it: these values must never
// change under one domain tag.
func TestKeysAreStable(t *testing.T) {
	got := []string{
		string(Of("t1", map[string]string{"app": "a", "tier": "web"})),
		string(Of("t1", nil)),
		string(OfName("t1", "a-7c9d-x1")),
		PodKey("t1", "a-7c9d-x1"),
		AttachmentKey("c1", "eth0"),
	}
	want := []string{
		"edce2a8ead8a87600c9e5523d8dc1018",
		"77a41136f1667323b7a2f6d0766cf7a7",
		"6b0702f0b64ae339cd1c9184772ccf4e",
		"4d8cf19b29b2b7f17684f419f98e81ab",
		"edf205b9774dbd2e2d3597ea7e4c7b76",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestNoLabelsIsOneIdentifier(t *testing.T) {
	if Of("ns", nil) != Of("ns", map[string]string{}) {
		t.Error("nil and empty labels differ")
	}
}

// Inputs that a key made by gluing strings would confuse.
func TestGluedInputsDiffer(t *testing.T) {
	tests := []struct {
		name string
		a, b string
	}{
		{"boundary between namespace and pod", string(OfName("ab", "c")), string(OfName("a", "bc"))},
		{"separator inside the name", string(OfName("a", "b/c")), string(OfName("a/b", "c"))},
		{"boundary between key and value", string(Of("n", map[string]string{"ab": "c"})), string(Of("n", map[string]string{"a": "bc"}))},
		{"label against namespace", string(Of("n", map[string]string{"a": ""})), string(Of("na", nil))},
		{"key and value exchanged", string(Of("n", map[string]string{"a": "b"})), string(Of("n", map[string]string{"b": "a"}))},
		{"two labels against one", string(Of("n", map[string]string{"a": "b", "c": "d"})), string(Of("n", map[string]string{"a": "bcd"}))},
		{"empty value against no label", string(Of("n", map[string]string{"a": ""})), string(Of("n", nil))},
		{"labels against name", string(Of("n", nil)), string(OfName("n", ""))},
		{"pod against name identifier", PodKey("n", "p"), string(OfName("n", "p"))},
		{"attachment against pod", AttachmentKey("n", "p"), PodKey("n", "p")},
		{"case", string(OfName("n", "P")), string(OfName("n", "p"))},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if tt.a == tt.b {
				t.Errorf("both are %s", tt.a)
			}
		})
	}
}

func TestParseRefuses(t *testing.T) {
	good := string(Of("ns", nil))
	for name, s := range map[string]string{
		"empty":            "",
		"one digit short":  good[1:],
		"one digit long":   good + "0",
		"upper case":       strings.Repeat("A", 32),
		"not hex":          strings.Repeat("g", 32),
		"path":             "../../../../../../../../etc/pass",
		"multi-byte runes": strings.Repeat("é", 16),
	} {
		if id, err := Parse(s); err == nil {
			t.Errorf("%s: %q was taken as %q", name, s, id)
		}
	}
}

func TestUnmarshalText(t *testing.T) {
	id := Of("ns", nil)
	var got Identifier
	if err := got.UnmarshalText([]byte(id)); err != nil || got != id {
		t.Errorf("got %q, %v", got, err)
	}
	if err := got.UnmarshalText([]byte("../x")); err == nil || got != id {
		t.Errorf("bad text: got %q, %v", got, err)
	}
	if err := got.UnmarshalText(nil); err != nil || got != "" {
		t.Errorf("empty text: got %q, %v", got, err)
	}
}

func TestBytesRoundTrip(t *testing.T) {
	id := Of("ns", map[string]string{"app": "a"})
	if got := FromBytes(id.Bytes()); got != id {
		t.Errorf("got %s, want %s", got, id)
	}
	if got := FromBytes([16]byte{}); got != "" {
		t.Errorf("zero bytes: got %q", got)
	}
}

func TestBytesOfForgedIdentifierPanics(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("no panic")
		}
	}()
	Identifier("not an identifier").Bytes()
}

// The encoding can be read back, so no two inputs share one.
func FuzzEncodingIsInjective(f *testing.F) {
	f.Add("ns", "app", "a", "tier", "web")
	f.Add("", "", "", "", "")
	f.Add("a", "bc", "ab", "c", "\x00\x00\x00\x01")
	f.Fuzz(func(t *testing.T, namespace, k1, v1, k2, v2 string) {
		labels := map[string]string{k1: v1, k2: v2}
		domain, parts := decode(t, encodeLabels(namespace, labels))
		if domain != domainLabels || parts[0] != namespace {
			t.Fatalf("domain %q namespace %q", domain, parts[0])
		}
		back := map[string]string{}
		for i := 1; i < len(parts); i += 2 {
			back[parts[i]] = parts[i+1]
		}
		if !maps.Equal(labels, back) {
			t.Fatalf("labels %v came back as %v", labels, back)
		}
		if id := Of(namespace, labels); id == OfName(namespace, k1) || string(id) == PodKey(namespace, k1) {
			t.Fatalf("kinds of key collide on %s", id)
		}
	})
}

// Two pairs have one key only if they are the same pair.
func FuzzPairsDoNotCollide(f *testing.F) {
	f.Add("ab", "c", "a", "bc")
	f.Add("", "a", "a", "")
	f.Fuzz(func(t *testing.T, a1, a2, b1, b2 string) {
		same := a1 == b1 && a2 == b2
		for name, key := range map[string]func(string, string) string{
			"pod": PodKey, "attachment": AttachmentKey,
			"name": func(ns, n string) string { return string(OfName(ns, n)) },
		} {
			if (key(a1, a2) == key(b1, b2)) != same {
				t.Fatalf("%s: (%q,%q) and (%q,%q)", name, a1, a2, b1, b2)
			}
		}
	})
}

func decode(t *testing.T, b []byte) (domain string, parts []string) {
	t.Helper()
	str := func() string {
		n := binary.BigEndian.Uint32(b)
		s := string(b[4 : 4+n])
		b = b[4+n:]
		return s
	}
	domain = str()
	n := binary.BigEndian.Uint32(b)
	b = b[4:]
	for range n {
		parts = append(parts, str())
	}
	if len(b) != 0 {
		t.Fatalf("%d bytes left over", len(b))
	}
	return domain, parts
}
