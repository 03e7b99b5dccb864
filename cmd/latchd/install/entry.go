package install

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// entry is our plugin's entry. Settings of latchd are not in it: primary CNIs that rewrite their configuration
// drop keys which they do not know, and latchd publishes the settings on the node.
type entry struct {
	Type     string `json:"type"`
	StateDir string `json:"stateDir,omitempty"`               // where the plugin finds the settings, if not in the usual place
	Disabled string `json:"disabled,omitempty"`               // why ADD is refused
	OwnFile  string `json:"latch-cni.dev/own-file,omitempty"` // name of the file, if all of it is ours and the name does not say so

	more keys // settings that somebody else made
}

// ownKeys are ours alone to say: of an entry that is there they are not kept. A plugin that takes other
// folders than latchd does would enforce what nobody updates.
var ownKeys = []string{"type", "stateDir", "bpffs", "disabled", ownFileKey}

const ownFileKey = "latch-cni.dev/own-file"

// ownFile returns the name under which we wrote a configuration, if all of it is ours; it may have been copied to
// another. Empty = it is of others, be there an entry of ours in it or not. DefaultName is ours whatever it holds.
func ownFile(name string, content []byte) string {
	if name == DefaultName {
		return name
	}
	list, _ := findPlugins(content) // what is none has no entry
	for _, s := range list {
		var wrote string
		if s.isOurs() && json.Unmarshal(s.keys()[ownFileKey], &wrote) == nil {
			return wrote
		}
	}
	return ""
}

// keys are of an entry.
type keys map[string]json.RawMessage

func (k keys) sorted() []string { return slices.Sorted(maps.Keys(k)) }

// isOwn takes the case of a key as the plugin does, which decodes it.
func isOwn(key string) bool {
	return slices.ContainsFunc(ownKeys, func(own string) bool { return strings.EqualFold(own, key) })
}

func (e entry) json() []byte {
	b := &bytes.Buffer{}
	enc := json.NewEncoder(b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(e); err != nil {
		panic(fmt.Sprintf("strings do not marshal: %v", err))
	}
	b.Truncate(len(bytes.TrimSpace(b.Bytes())) - len("}"))
	for _, key := range e.more.sorted() {
		fmt.Fprintf(b, ",%s:", marshal(key))
		if err := json.Compact(b, e.more[key]); err != nil {
			panic(fmt.Sprintf("what was decoded is no value: %v", err))
		}
	}
	b.WriteByte('}')
	return b.Bytes()
}

func marshal(s string) []byte {
	b, _ := json.Marshal(s) // a string does marshal
	return b
}

// otherKeys lists what the entries of ours in a conflist say and this one does not: what withEntry keeps, and
// what it drops since it is ours to say.
func otherKeys(conflist []byte, e entry) (kept, dropped []string) {
	list, _ := findPlugins(conflist) // withEntry says so
	var want keys
	_ = json.Unmarshal(e.json(), &want)
	for _, s := range list {
		if !s.isOurs() {
			continue
		}
		have := s.keys()
		for _, key := range have.sorted() {
			said := fmt.Sprintf("%s=%s", key, have[key])
			switch {
			case !isOwn(key):
				kept = append(kept, said)
			case !bytes.Equal(have[key], want[key]) && !strings.EqualFold(key, "type"):
				dropped = append(dropped, said)
			}
		}
	}
	return kept, dropped
}
