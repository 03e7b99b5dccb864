package doctor

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/latch-cni/latch/plugin"
)

// conf is what matters of a CNI configuration.
type conf struct {
	Type     string `json:"type"`
	Disabled string `json:"disabled"`
	Plugins  []conf `json:"plugins"`

	raw []byte
}

// UnmarshalJSON keeps the text, too.
func (c *conf) UnmarshalJSON(b []byte) error {
	type plain conf
	c.raw = bytes.Clone(b)
	return json.Unmarshal(b, (*plain)(c))
}

// plugins are those of a list, or the one of a file with a single plugin.
func (c conf) plugins() []conf {
	if len(c.Plugins) == 0 {
		return []conf{c}
	}
	return c.Plugins
}

func (c conf) chain() []string {
	var types []string
	for _, p := range c.plugins() {
		types = append(types, p.Type)
	}
	return types
}

const (
	pluginType = "latch"
	install    = "latchd install, and leave latchd running with --cni-conf-dir; or name the runtime's folder: --cni-conf-dir"
)

// configuration looks at what a runtime would take: the first file of the folder, by name.
func (x *exam) configuration() {
	const check = "conflist"
	entries, err := os.ReadDir(x.ConfDir)
	if err != nil {
		x.add(Fail, check, "name the runtime's folder: --cni-conf-dir", "%v", err)
		return
	}
	names := []string{}
	for _, e := range entries {
		if slices.Contains([]string{".conf", ".conflist", ".json"}, filepath.Ext(e.Name())) {
			names = append(names, e.Name())
		}
	}
	ours := "" // the first that chains us
	for _, name := range names {
		c, err := x.read(name)
		if err != nil {
			x.add(Warn, check, "mend or remove it: a runtime that takes it starts no pods", "%v", err)
			continue
		}
		chain := c.chain()
		at := slices.Index(chain, pluginType)
		switch {
		case at < 0 && slices.Contains(chain, "multus"):
			continue // delegates to the next
		case at < 0 && len(chain) == 1 && chain[0] == "loopback":
			continue
		case at < 0:
			x.unchained(name, names)
			return
		case at < len(chain)-1:
			x.add(Warn, check, "move latch to the end: plugins behind it may add interfaces that it does not see", "%s has latch before %s", name, strings.Join(chain[at+1:], ", "))
		case c.plugins()[at].Disabled != "":
			x.add(Fail, check, "install a primary CNI; latchd chains Latch to it", "%s refuses every pod: %s", name, c.plugins()[at].Disabled)
		case !x.entry(name, c.plugins()[at].raw): // it says so
		default:
			x.add(OK, check, "", "%s: %s", filepath.Join(x.ConfDir, name), strings.Join(chain, ", "))
		}
		ours = name
		break
	}
	if ours == "" {
		x.add(Fail, check, install, "no configuration in %s has latch", x.ConfDir)
	}
}

// entry reports what the plugin thinks of its entry, and false if that keeps pods from starting.
func (x *exam) entry(file string, raw []byte) bool {
	const fix = "correct it in the file, or in the primary CNI's if latchd makes this one from that"
	unknown, err := plugin.CheckEntry(raw)
	if len(unknown) > 0 {
		x.add(Warn, "conflist", fix, "%s has keys in latch's entry that nothing reads: %s", file, strings.Join(unknown, ", "))
	}
	if err != nil {
		x.add(Fail, "conflist", fix, "%s: latch refuses every pod: %v", file, err)
	}
	return err == nil
}

// unchained is about a file without us that runtimes take before any with us.
func (x *exam) unchained(first string, names []string) {
	for _, name := range names {
		if c, err := x.read(name); err == nil && slices.Contains(c.chain(), pluginType) {
			x.add(Fail, "conflist", "latchd --conflist-name with a name that sorts before "+first+", or --in-place",
				"runtimes take %s, which sorts before %s: pods start without policy", first, name)
			return
		}
	}
	x.add(Fail, "conflist", install, "runtimes take %s, which does not have latch: pods start without policy", first)
}

func (x *exam) read(name string) (conf, error) {
	var c conf
	path := filepath.Join(x.ConfDir, name)
	raw, err := os.ReadFile(path)
	if err == nil {
		if err = json.Unmarshal(raw, &c); err != nil {
			err = &os.PathError{Op: "parse", Path: path, Err: err}
		}
	}
	return c, err
}

func (x *exam) plugin() {
	path := filepath.Join(x.BinDir, pluginType)
	st, err := os.Stat(path)
	switch {
	case err != nil:
		x.add(Fail, "plugin", "latchd install, or name the runtime's folder: --cni-bin-dir", "%v", err)
	case st.Mode()&0o111 == 0:
		x.add(Fail, "plugin", "chmod 755 "+path, "%s is not executable", path)
	default:
		x.add(OK, "plugin", "", "%s", path)
	}
}
