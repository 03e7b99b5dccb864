package install

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/containernetworking/cni/libcni"
	"github.com/google/go-cmp/cmp"
)

const (
	bare     = `{"type":"latch"}`
	portmap  = `{"type":"portmap","capabilities":{"portMappings":true},"snat":true}`
	vpc      = `{"type":"aws-cni","name":"aws-cni","mtu":"9001","x":1e3,"big":12345678901234567890}`
	frame    = `{"cniVersion":"0.4.0","name":"aws-cni","disableCheck":true,"plugins":[%]}`
	indented = "{\n  \"cniVersion\": \"1.0.0\",\n  \"name\": \"n\",\n  \"plugins\": [\n    {\n      \"type\": \"ptp\"\n    }\n  ],\n  \"own\": 1\n}\n"
)

func conflist(plugins ...string) string {
	return strings.Replace(frame, "%", strings.Join(plugins, ","), 1)
}

func TestWithEntry(t *testing.T) {
	tests := []struct {
		name, in, want string
		entry          entry
	}{
		{name: "goes last, everything else as it was", in: conflist(vpc, portmap), want: conflist(vpc, portmap, bare)},
		{name: "is there already", in: conflist(vpc, bare), want: conflist(vpc, bare)},
		{name: "is there in another form", in: conflist(vpc, `{ "type" : "latch" }`), want: conflist(vpc, `{ "type" : "latch" }`)},
		{name: "is not last", in: conflist(vpc, bare, portmap), want: conflist(vpc, portmap, bare)},
		{name: "is first", in: conflist(bare, vpc, portmap), want: conflist(vpc, portmap, bare)},
		{name: "is there twice", in: conflist(bare, vpc, bare), want: conflist(vpc, bare)},
		{name: "has wrong arguments", in: conflist(vpc, `{"type":"latch","stateDir":"/nowhere","attachMode":"x"}`), want: conflist(vpc, `{"type":"latch","attachMode":"x"}`)},
		{name: "has settings", in: conflist(vpc, `{ "antiSpoof": true, "type": "latch" }`), want: conflist(vpc, `{ "antiSpoof": true, "type": "latch" }`)},
		{name: "has settings and is not last", in: conflist(vpc, `{"type":"latch","x":[ 1, 12345678901234567890 ],"enforcingMode":"strict","antiSpoof":true}`, portmap),
			want: conflist(vpc, portmap, `{"type":"latch","antiSpoof":true,"enforcingMode":"strict","x":[1,12345678901234567890]}`)},
		{name: "has settings and is disabled", in: conflist(vpc, `{"type":"latch","antiSpoof":true}`), entry: entry{Disabled: "gone"},
			want: conflist(vpc, `{"type":"latch","disabled":"gone","antiSpoof":true}`)},
		{name: "has settings twice", in: conflist(`{"type":"latch","antiSpoof":true,"logLevel":"warn"}`, vpc, `{"type":"latch","logLevel":"info"}`),
			want: conflist(vpc, `{"type":"latch","antiSpoof":true,"logLevel":"info"}`)},
		{name: "has other folders than latchd", in: conflist(vpc, `{"type":"latch","StateDir":"/x","bpffs":"/x","antiSpoof":true}`), entry: entry{StateDir: "/s"},
			want: conflist(vpc, `{"type":"latch","stateDir":"/s","antiSpoof":true}`)},
		{name: "has arguments of a wrong type", in: conflist(vpc, `{"type":"latch","stateDir":["/nowhere"]}`), want: conflist(vpc, bare)},
		{name: "needs an argument", in: conflist(vpc, bare), entry: entry{StateDir: "/s"}, want: conflist(vpc, `{"type":"latch","stateDir":"/s"}`)},
		{name: "is disabled", in: conflist(vpc, bare), entry: entry{Disabled: "a <b> is gone"}, want: conflist(vpc, `{"type":"latch","disabled":"a <b> is gone"}`)},
		{name: "is enabled again", in: conflist(vpc, `{"type":"latch","disabled":"gone"}`), want: conflist(vpc, bare)},
		{name: "keeps the style of the text", in: indented, want: strings.Replace(indented, "\n    }\n  ]", "\n    },\n    {\"type\":\"latch\"}\n  ]", 1)},
		{name: "does not raise the version", in: strings.Replace(conflist(vpc), "0.4.0", "0.3.1", 1), want: strings.Replace(conflist(vpc, bare), "0.4.0", "0.3.1", 1)},
		{name: "space before the comma", in: conflist(vpc+" \n ", portmap+" "), want: conflist(vpc+" \n ", portmap+","+bare+" ")},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			tt.entry.Type = pluginType
			got, err := withEntry([]byte(tt.in), tt.entry)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, string(got)); diff != "" {
				t.Error(diff)
			}
			again, err := withEntry(got, tt.entry)
			if err != nil || string(again) != string(got) {
				t.Errorf("again: %s, %v", again, err)
			}
			list, err := libcni.NetworkConfFromBytes(got)
			if err != nil {
				t.Fatal(err)
			}
			if last := list.Plugins[len(list.Plugins)-1].Network.Type; last != "latch" {
				t.Errorf("the last plugin of the runtime is %s", last)
			}
		})
	}
}

func TestWithEntryRefuses(t *testing.T) {
	tests := []struct{ name, in, want string }{
		{"empty file", ``, "unexpected end"},
		{"truncated", conflist(vpc)[:40], "unexpected end"},
		{"old content behind a shorter new one", conflist(vpc) + `"}]}`, "after top-level value"},
		{"no list", `[]`, "cannot unmarshal"},
		{"no name", strings.Replace(conflist(vpc), `"name":"aws-cni",`, "", 1), "no name"},
		{"empty name", strings.Replace(conflist(vpc), `"aws-cni"`, `""`, 1), "no name"},
		{"no plugins", `{"cniVersion":"1.0.0","name":"n"}`, "no plugins"},
		{"plugins empty", conflist(), "no plugins"},
		{"plugins no list", `{"cniVersion":"1.0.0","name":"n","plugins":{}}`, "invalid 'plugins' type"},
		{"plugin without type", conflist(`{"name":"x"}`), "missing 'type'"},
		{"plugins twice", `{"cniVersion":"1.0.0","name":"n","plugins":[{"type":"a"}],"plugins":[{"type":"b"}]}`, "twice"},
		{"latch alone", conflist(bare), "no plugin but latch"},
		{"version without chains", strings.Replace(conflist(vpc), "0.4.0", "0.2.0", 1), "0.3.0 or newer"},
		{"no version", strings.Replace(conflist(vpc), `"cniVersion":"0.4.0",`, "", 1), "0.3.0 or newer"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := withEntry([]byte(tt.in), entry{Type: pluginType})
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("want an error with %q, have %v, %s", tt.want, err, got)
			}
		})
	}
}

// What is put in can be taken out without a trace.
func TestWithoutEntryIsTheReverse(t *testing.T) {
	for _, in := range []string{conflist(vpc), conflist(vpc, portmap), indented, strings.ReplaceAll(indented, "\n", "\r\n")} {
		with, err := withEntry([]byte(in), entry{Type: pluginType, StateDir: "/s"})
		if err != nil {
			t.Fatal(err)
		}
		without, err := withoutEntry(with)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(in, string(without)); diff != "" {
			t.Error(diff)
		}
		if !hasEntry(with) || hasEntry(without) {
			t.Error("hasEntry is wrong")
		}
	}
	for in, want := range map[string]string{
		conflist(bare, vpc, bare, portmap): conflist(vpc, portmap),
		conflist(bare):                     conflist(),
		conflist(bare, bare):               conflist(),
	} {
		if got, err := withoutEntry([]byte(in)); err != nil || string(got) != want {
			t.Errorf("%s: have %s, %v", in, got, err)
		}
	}
}

// A configuration with a single plugin becomes a list.
func TestAsConflist(t *testing.T) {
	single := `{"cniVersion":"0.4.0","name":"net","type":"ptp","mtu":1400,"ipam":{"type":"host-local"}}`
	list, err := asConflist([]byte(single), false)
	if err != nil {
		t.Fatal(err)
	}
	got, err := withEntry(list, entry{Type: pluginType})
	if err != nil {
		t.Fatal(err)
	}
	want := `{"cniVersion":"0.4.0","name":"net","plugins":[` + single + `,{"type":"latch"}]}`
	wantJSON(t, want, string(got))
	if _, err := asConflist([]byte(conflist(vpc)), false); err == nil {
		t.Error("a list was taken as a single plugin")
	}
}

// Plugins in a folder beside the conflist would run behind latch: they come into the list.
func TestWithPlugins(t *testing.T) {
	in := `{"cniVersion":"1.1.0","name":"n","loadOnlyInlinedPlugins":false,"disableGC":true,"plugins":[{"type":"ptp"}]}`
	extra := []*libcni.PluginConfig{{Bytes: []byte(portmap)}}
	got, err := withPlugins([]byte(in), extra)
	if err != nil {
		t.Fatal(err)
	}
	want := `{"cniVersion":"1.1.0","name":"n","loadOnlyInlinedPlugins":true,"disableGC":true,"plugins":[{"type":"ptp"},` + portmap + `]}`
	wantJSON(t, want, string(got))
}

func wantJSON(t *testing.T, want, have string) {
	t.Helper()
	if diff := cmp.Diff(decode(t, want), decode(t, have)); diff != "" {
		t.Error(diff)
	}
}

func decode(t *testing.T, s string) (v any) {
	t.Helper()
	if err := json.Unmarshal([]byte(s), &v); err != nil {
		t.Fatalf("%v in %s", err, s)
	}
	return v
}

func FuzzWithEntry(f *testing.F) {
	f.Add([]byte(conflist(vpc, portmap)))
	f.Add([]byte(indented))
	f.Fuzz(func(t *testing.T, in []byte) {
		got, err := withEntry(in, entry{Type: pluginType})
		if err != nil {
			return
		}
		list, err := libcni.NetworkConfFromBytes(got)
		if err != nil {
			t.Fatalf("%s became %s: %v", in, got, err)
		}
		for i, p := range list.Plugins {
			if (p.Network.Type == pluginType) != (i == len(list.Plugins)-1) {
				t.Fatalf("%s became %s", in, got)
			}
		}
	})
}
