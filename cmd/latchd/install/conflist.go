package install

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/version"
)

// pluginType is our type in a configuration, and the name of the binary.
const pluginType = "latch"

// withEntry returns a conflist with one entry of ours, the last of its plugins. Everything else stays
// byte for byte, and so does all of it if the entry is there already. What an entry that is there says and
// ours does not, stays. It fails if the conflist is not one that a runtime could use.
func withEntry(conflist []byte, e entry) ([]byte, error) {
	if err := validate(conflist); err != nil {
		return nil, err
	}
	list, err := findPlugins(conflist)
	if err != nil {
		return nil, err
	}
	if n := len(list); n > 1 && list[n-1].isEntry(e) && list.ours() == 1 {
		return conflist, nil
	}
	e.more = list.settings()
	if conflist, err = withoutEntry(conflist); err != nil {
		return nil, err
	}
	if list, err = findPlugins(conflist); err != nil {
		return nil, err
	}
	if len(list) == 0 {
		return nil, errors.New("it has no plugin but latch")
	}
	last := list[len(list)-1]
	out := append([]byte{}, conflist[:last.end]...)
	out = append(out, ',')
	out = append(out, conflist[last.gap:last.start]...) // the space that is before the last one, too
	out = append(out, e.json()...)
	return append(out, conflist[last.end:]...), nil
}

// withoutEntry removes all entries of ours, with the comma and space before them.
func withoutEntry(conflist []byte) ([]byte, error) {
	for {
		list, err := findPlugins(conflist)
		if err != nil {
			return nil, err
		}
		i := list.indexOfOurs()
		switch {
		case i < 0:
			return conflist, nil
		case i > 0:
			conflist = cut(conflist, list[i-1].end, list[i].end)
		case len(list) > 1:
			conflist = cut(conflist, list[0].start, list[1].start)
		default:
			conflist = cut(conflist, list[0].start, list[0].end)
		}
	}
}

func cut(b []byte, from, to int64) []byte {
	return append(append([]byte{}, b[:from]...), b[to:]...)
}

// hasEntry tells whether there is an entry of ours, of whatever content.
func hasEntry(conflist []byte) bool {
	list, err := findPlugins(conflist)
	return err == nil && list.ours() > 0
}

// asConflist returns what a configuration file holds as a conflist; fromList says that it is one by its
// name, else it is a single plugin, and becomes a list as runtimes make it one.
func asConflist(content []byte, fromList bool) ([]byte, error) {
	if fromList {
		return content, validate(content)
	}
	if _, err := libcni.NetworkPluginConfFromBytes(content); err != nil {
		return nil, err
	}
	var head struct {
		CNIVersion string `json:"cniVersion,omitempty"`
		Name       string `json:"name"`
	}
	if err := json.Unmarshal(content, &head); err != nil {
		return nil, err
	}
	b, err := json.MarshalIndent(struct {
		CNIVersion string            `json:"cniVersion,omitempty"`
		Name       string            `json:"name"`
		Plugins    []json.RawMessage `json:"plugins"`
	}{head.CNIVersion, head.Name, []json.RawMessage{content}}, "", "  ")
	if err != nil {
		return nil, err
	}
	b = append(b, '\n')
	return b, validate(b)
}

// withPlugins puts plugins that lie in a folder beside the conflist into it, where runtimes would append
// them: behind ours.
func withPlugins(conflist []byte, plugins []*libcni.PluginConfig) ([]byte, error) {
	var list map[string]json.RawMessage
	if err := json.Unmarshal(conflist, &list); err != nil {
		return nil, err
	}
	var inline []json.RawMessage
	if raw, ok := list["plugins"]; ok {
		if err := json.Unmarshal(raw, &inline); err != nil {
			return nil, err
		}
	}
	for _, p := range plugins {
		inline = append(inline, p.Bytes)
	}
	var err error
	if list["plugins"], err = json.Marshal(inline); err != nil {
		return nil, err
	}
	list["loadOnlyInlinedPlugins"] = json.RawMessage("true")
	b, err := json.MarshalIndent(list, "", "  ")
	return append(b, '\n'), err
}

// validate takes what the library of the runtimes takes, and what a chained plugin can work with.
func validate(conflist []byte) error {
	list, err := libcni.NetworkConfFromBytes(conflist)
	if err != nil {
		return err
	}
	if list.Name == "" {
		return errors.New("it has no name")
	}
	const chains = "0.3.0"
	if ok, err := version.GreaterThanOrEqualTo(list.CNIVersion, chains); err != nil || !ok {
		return fmt.Errorf("cniVersion %q: a chained plugin needs %s or newer", list.CNIVersion, chains)
	}
	return nil
}
