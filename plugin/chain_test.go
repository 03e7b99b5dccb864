package plugin_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"

	"github.com/latch-cni/latch/plugin"
)

// mainPlugin stands for the plugin that made the pod's interface: ADD gives the result that the test
// has written for the container.
const mainPlugin = `#!/bin/sh
cat >/dev/null
case "$CNI_COMMAND" in
ADD) cat "$(dirname "$0")/$CNI_CONTAINERID.json" ;;
VERSION) echo '{"cniVersion":"1.1.0","supportedVersions":["0.3.0","0.3.1","0.4.0","1.0.0","1.1.0"]}' ;;
esac
`

// Through the library that runtimes use, with a conflist: what it caches and hands on is what latch has
// to live with.
func TestChainThroughLibcni(t *testing.T) {
	for _, version := range plugin.Versions().SupportedVersions() {
		t.Run(version, func(t *testing.T) {
			n := newNode(t)
			s := n.sandbox("web")
			n.publish(s)
			c := n.chain(version, s)
			var result types.Result
			c.run("ADD", func() (err error) {
				result, err = c.cni.AddNetworkList(c.ctx, c.list, c.runtime)
				return err
			})
			got, err := types100.GetResult(result)
			if err != nil {
				t.Fatal(err)
			}
			if len(got.Interfaces) != 3 || len(got.IPs) != 1 {
				t.Errorf("result %+v, want the main plugin's", got)
			}
			if atLeast(version, "0.4.0") {
				c.run("CHECK", func() error { return c.cni.CheckNetworkList(c.ctx, c.list, c.runtime) })
			}
			if atLeast(version, "1.1.0") {
				valid := &libcni.GCArgs{ValidAttachments: []types.GCAttachment{{ContainerID: s.container, IfName: "eth0"}}}
				c.run("GC that keeps", func() error { return c.cni.GCNetworkList(c.ctx, c.list, valid) })
				c.run("CHECK", func() error { return c.cni.CheckNetworkList(c.ctx, c.list, c.runtime) })
				c.run("GC that removes", func() error { return c.cni.GCNetworkList(c.ctx, c.list, &libcni.GCArgs{}) })
				n.wantNoAttachments()
			}
			for _, again := range []string{"DEL", "DEL again", "DEL without netns"} {
				if again == "DEL without netns" {
					c.runtime.NetNS = ""
				}
				c.run(again, func() error { return c.cni.DelNetworkList(c.ctx, c.list, c.runtime) })
				n.wantNoAttachments()
			}
		})
	}
}

// A runtime that lost its cache has no prevResult for DEL.
func TestDelWithoutCachedResult(t *testing.T) {
	n := newNode(t)
	s := n.sandbox("web")
	n.publish(s)
	c := n.chain("1.0.0", s)
	c.run("ADD", func() error { _, err := c.cni.AddNetworkList(c.ctx, c.list, c.runtime); return err })
	if err := os.RemoveAll(c.cache); err != nil {
		t.Fatal(err)
	}
	c.run("DEL", func() error { return c.cni.DelNetworkList(c.ctx, c.list, c.runtime) })
	n.wantNoAttachments()
}

// chain is a conflist with the main plugin and latch, and the library to run it.
type chain struct {
	t       testing.TB
	n       *node
	ctx     context.Context
	cni     *libcni.CNIConfig
	cache   string
	list    *libcni.NetworkConfigList
	runtime *libcni.RuntimeConf
}

func (n *node) chain(version string, s *sandbox) *chain {
	n.t.Helper()
	bin, cache := n.t.TempDir(), n.t.TempDir()
	result, err := json.Marshal(s.result(version))
	if err != nil {
		n.t.Fatal(err)
	}
	for name, content := range map[string]string{"main": mainPlugin, s.container + ".json": string(result)} {
		if err := os.WriteFile(filepath.Join(bin, name), []byte(content), 0o755); err != nil {
			n.t.Fatal(err)
		}
	}
	entry := n.netConf(version, nil, nil)
	delete(entry, "cniVersion")
	delete(entry, "name")
	conflist, err := json.Marshal(map[string]any{
		"cniVersion": version, "name": "pods", "plugins": []any{map[string]any{"type": "main"}, entry},
	})
	if err != nil {
		n.t.Fatal(err)
	}
	list, err := libcni.NetworkConfFromBytes(conflist)
	if err != nil {
		n.t.Fatal(err)
	}
	return &chain{
		t: n.t, n: n, ctx: context.Background(), list: list, cache: cache,
		cni: libcni.NewCNIConfigWithCacheDir([]string{bin, n.bin}, cache, nil),
		runtime: &libcni.RuntimeConf{
			ContainerID: s.container, NetNS: s.netns.Path(), IfName: "eth0",
			Args: [][2]string{{"IgnoreUnknown", "1"}, {"K8S_POD_NAMESPACE", "shop"}, {"K8S_POD_NAME", s.name},
				{"K8S_POD_INFRA_CONTAINER_ID", s.container}, {"K8S_POD_UID", s.uid}},
		},
	}
}

func (c *chain) run(what string, f func() error) {
	c.t.Helper()
	if err := c.n.host.Do(f); err != nil {
		c.t.Fatal(fmt.Errorf("%s: %w", what, err))
	}
}
