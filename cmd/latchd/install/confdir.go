package install

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/containernetworking/cni/libcni"

	"github.com/latch-cni/latch/shared/folder"
)

// Defaults of the places on a node.
const (
	DefaultConfDir  = "/etc/cni/net.d"
	DefaultBinDir   = "/opt/cni/bin"
	DefaultName     = "05-latch.conflist"
	DefaultStateDir = "/run/latch"
)

// Config says where the node's CNI configuration is and what our part in it is.
type Config struct {
	ConfDir  string // folder of configurations
	Name     string // of our own file; it must sort before the primary's
	Primary  string // name of the primary's file; empty = the first that is not ours
	InPlace  bool   // edit the primary's file instead of having our own
	StateDir string // of the plugin
	Log      *slog.Logger
}

func (c Config) withDefaults() Config {
	if c.Name == "" {
		c.Name = DefaultName
	}
	if c.StateDir == "" {
		c.StateDir = DefaultStateDir
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return c
}

func (c Config) path(name string) string { return filepath.Join(c.ConfDir, name) }

// Check says what is wrong with the names, before anything is looked at.
func (c Config) Check() error {
	if name := c.withDefaults().Name; name != filepath.Base(name) || !isList(name) {
		return fmt.Errorf("--conflist-name %q: must be a plain file name that ends in .conflist, as runtimes read it", name)
	}
	return nil
}

// entry is what our plugin's entry has to be; disabled says why it refuses ADD, empty if it does not.
func (c Config) entry(disabled string) entry {
	e := entry{Type: pluginType, Disabled: disabled}
	if !c.InPlace && c.Name != DefaultName {
		e.OwnFile = c.Name
	}
	if c.StateDir != DefaultStateDir {
		e.StateDir = c.StateDir
	}
	return e
}

// extensions are those of the files that runtimes take for configurations.
var extensions = []string{".conf", ".conflist", ".json"}

var (
	errNoPrimary = errors.New("there is no configuration of a primary CNI")
	// errOtherPrimary is errNoPrimary where others are that could be meant.
	errOtherPrimary = fmt.Errorf("%w", errNoPrimary)
)

// primary returns the name of the file to follow. The error wraps errNoPrimary if there is none.
func (c Config) primary() (string, error) {
	others, err := c.others()
	if err != nil {
		return "", err
	}
	var primaries []string
	for _, name := range others {
		switch content, err := os.ReadFile(c.path(name)); {
		case ownFile(name, content) != "": // under another name than now, or a copy
		case name == c.Primary:
			return name, nil
		case err != nil || !isWrapper(name, content):
			primaries = append(primaries, name)
		}
	}
	switch {
	case c.Primary != "" && len(primaries) > 0:
		return "", fmt.Errorf("%w named %s in %s, where there is %s", errOtherPrimary, c.Primary, c.ConfDir, strings.Join(primaries, ", "))
	case c.Primary != "":
		return "", fmt.Errorf("%w named %s in %s", errNoPrimary, c.Primary, c.ConfDir)
	case len(primaries) == 0:
		return "", fmt.Errorf("%w in %s", errNoPrimary, c.ConfDir)
	}
	return primaries[0], nil
}

// others lists the files that runtimes take for configurations, but ours, in the order in which they
// take them.
func (c Config) others() ([]string, error) {
	names, err := c.files()
	return slices.DeleteFunc(names, func(name string) bool { return name == c.Name }), err
}

// own lists configurations that are all ours, also those from before --conflist-name was another.
func (c Config) own() ([]string, error) {
	names, err := c.files()
	return slices.DeleteFunc(names, func(name string) bool {
		content, _ := os.ReadFile(c.path(name)) // what cannot be read does not say that it is ours
		return ownFile(name, content) != name && !(name == c.Name && c.unmarked(content))
	}), err
}

// unmarked tells whether what our own file's name has is ours, as earlier builds wrote it, which did not note the
// name in the entry. Of files with an entry of ours only our own are ever disabled, or repeat the network of another.
func (c Config) unmarked(content []byte) bool {
	list, _ := findPlugins(content) // what is none has no entry
	i := list.indexOfOurs()
	if i < 0 {
		return false
	}
	if _, disabled := list[i].keys()["disabled"]; disabled {
		return true
	}
	others, _ := c.others() // without them nothing says that it is ours
	return slices.ContainsFunc(others, func(name string) bool {
		other, err := os.ReadFile(c.path(name))
		return err == nil && ownFile(name, other) == "" && network(other) != "" && network(other) == network(content)
	})
}

// network is the name that a configuration gives to its network.
func network(content []byte) string {
	var conf struct {
		Name string `json:"name"`
	}
	_ = json.Unmarshal(content, &conf) // what is none names none
	return conf.Name
}

// files lists what runtimes take for configurations, in the order in which they take it.
func (c Config) files() ([]string, error) {
	entries, err := folder.Entries(c.ConfDir) // a primary that is being replaced is none that is gone
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("list CNI configurations: %w", err)
	}
	var names []string
	for _, e := range entries {
		if name := e.Name(); !e.IsDir() && slices.Contains(extensions, filepath.Ext(name)) {
			names = append(names, name)
		}
	}
	return names, nil
}

// hidden returns an error if a configuration sorts before our own: then runtimes never read ours. One
// of Multus may: it delegates to the first of the others, which is ours.
func (c Config) hidden() error {
	others, err := c.others()
	if err != nil {
		return err
	}
	own, err := c.own()
	if err != nil {
		return err
	}
	for _, name := range others {
		if name > c.Name {
			break
		}
		if slices.Contains(own, name) {
			continue // goes once ours is there
		}
		if content, err := os.ReadFile(c.path(name)); err == nil && isWrapper(name, content) {
			continue
		}
		return fmt.Errorf("%s sorts before %s, so that runtimes never read ours: choose another --conflist-name, or --in-place", name, c.Name)
	}
	return nil
}

// isWrapper tells whether a configuration is not that of a primary CNI: it calls others by their
// configurations, or it is for loopback alone.
func isWrapper(name string, content []byte) bool {
	var conf struct {
		Type    string `json:"type"`
		Plugins []struct {
			Type string `json:"type"`
		} `json:"plugins"`
	}
	if json.Unmarshal(content, &conf) != nil {
		return false
	}
	first := conf.Type
	if isList(name) && len(conf.Plugins) > 0 {
		first = conf.Plugins[0].Type
	}
	return slices.Contains([]string{"multus", "multus-shim", "loopback"}, first)
}

// editable returns an error if our entry cannot go into a file.
func (c Config) editable(name string) error {
	if !isList(name) {
		return fmt.Errorf("CNI configuration %s is a single plugin, not a conflist: it cannot be edited in place", c.path(name))
	}
	return nil
}

func isList(name string) bool { return filepath.Ext(name) == ".conflist" }

// read returns the primary's configuration as a conflist with all of its plugins, and the mode of the
// file.
func (c Config) read(name string) ([]byte, fs.FileMode, error) {
	content, err := os.ReadFile(c.path(name))
	if err != nil {
		return nil, 0, err
	}
	st, err := os.Stat(c.path(name))
	if err != nil {
		return nil, 0, err
	}
	conflist, err := asConflist(content, isList(name))
	if err != nil {
		return nil, 0, err
	}
	list, err := libcni.NetworkConfFromBytes(conflist)
	if err != nil {
		return nil, 0, err
	}
	if !list.LoadOnlyInlinedPlugins {
		plugins, err := libcni.NetworkPluginConfsFromFiles(c.ConfDir, list.Name)
		if err != nil {
			return nil, 0, err
		}
		if len(plugins) > 0 {
			conflist, err = withPlugins(conflist, plugins)
			if err != nil {
				return nil, 0, err
			}
		}
	}
	return conflist, st.Mode().Perm(), nil
}
