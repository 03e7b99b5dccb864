package plugin

import (
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/latch-cni/latch/shared/near"
)

// unknownKey is a key of the plugin's entry that nothing reads: most likely a setting that is misspelt.
type unknownKey struct {
	key     string
	nearest string // known one that may have been meant, or empty
}

// The keys that the specification, libcni and runtimes put into the entry of any plugin. Those with a
// slash are somebody's own.
var commonKeys = []string{"cniVersion", "name", "type", "args", "capabilities", "dns", "ipam", "ipMasq", "prevResult", "runtimeConfig"}

// settingKeys are the plugin's own.
func settingKeys() []string {
	keys := []string{}
	for _, f := range reflect.VisibleFields(reflect.TypeFor[netConf]()) {
		if key, _, _ := strings.Cut(f.Tag.Get("json"), ","); key != "" {
			keys = append(keys, key)
		}
	}
	return keys
}

// unknownKeys finds the keys that nobody reads. They are no error: runtimes and tools that write chains
// add keys of their own.
func unknownKeys(stdin []byte) []unknownKey {
	var entry map[string]json.RawMessage
	if json.Unmarshal(stdin, &entry) != nil {
		return nil // parseConfig says so
	}
	keys := slices.DeleteFunc(slices.Sorted(maps.Keys(entry)), func(key string) bool {
		return strings.Contains(key, "/") || isOneOf(key, commonKeys)
	})
	if len(keys) == 0 {
		return nil
	}
	own := settingKeys()
	var unknown []unknownKey
	for _, key := range keys {
		if !isOneOf(key, own) {
			unknown = append(unknown, unknownKey{key, nearest(key, own)})
		}
	}
	return unknown
}

func isOneOf(key string, known []string) bool {
	return slices.ContainsFunc(known, func(k string) bool { return strings.EqualFold(k, key) })
}

// CheckEntry says what the plugin makes of its entry in a conflist: the keys that nothing reads, with the one
// that may have been meant, and the error with which it refuses every ADD, nil if it does not.
func CheckEntry(entry []byte) (unknown []string, err error) {
	conf, err := parseConfig(entry)
	for _, u := range conf.unknown {
		said := u.key
		if u.nearest != "" {
			said += " (" + u.nearest + "?)"
		}
		unknown = append(unknown, said)
	}
	return unknown, err
}

// nearest returns the candidate that a word is likely meant to be, or empty.
func nearest(word string, candidates []string) string {
	lower := make([]string, len(candidates))
	for i, c := range candidates {
		lower[i] = strings.ToLower(c)
	}
	if i := slices.Index(lower, near.Word(strings.ToLower(word), lower)); i >= 0 {
		return candidates[i]
	}
	return ""
}

// warnOfUnknownKeys names the keys that nothing reads in the log.
func (c *call) warnOfUnknownKeys() {
	for _, u := range c.conf.unknown {
		log := c.log.With("key", u.key)
		if u.nearest != "" {
			log = log.With("nearest", u.nearest)
		}
		log.Warn("unknown key in the plugin's entry, it is ignored")
	}
}
