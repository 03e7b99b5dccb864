package regress

import (
	"context"
	"fmt"
	"net/netip"
	"path/filepath"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/invoke"

	"github.com/latch-cni/latch/shared/testenv"
)

// chained is a pod that libcni connects: ptp makes the interface, then comes latch.
type chained struct {
	*pod
	list *libcni.NetworkConfigList
	rt   *libcni.RuntimeConf
}

// chained prepares a pod in a namespace that is empty.
func (g *ground) chained(ns *testenv.NetNS, spec testenv.PodSpec, container string) *chained {
	g.t.Helper()
	p := &pod{g: g, uid: "uid-" + spec.Name, container: container, Pod: &testenv.Pod{NetNS: ns, Spec: spec, IfName: "eth0",
		Addr4: netip.MustParseAddr(spec.Addr4), Addr6: netip.MustParseAddr(spec.Addr6)}}
	ptp := map[string]any{"type": "ptp", "ipam": map[string]any{"type": "static",
		"addresses": []any{
			map[string]any{"address": spec.Addr4 + "/16", "gateway": testenv.NodeAddr4},
			map[string]any{"address": spec.Addr6 + "/40", "gateway": testenv.NodeAddr6},
		},
		"routes": []any{map[string]any{"dst": "0.0.0.0/0"}, map[string]any{"dst": "::/0"}},
	}}
	latch := g.entry()
	delete(latch, "cniVersion")
	delete(latch, "name")
	raw := mustJSON(map[string]any{"cniVersion": "1.1.0", "name": "pods", "plugins": []any{ptp, latch}})
	list, err := libcni.NetworkConfFromBytes(raw)
	if err != nil {
		g.t.Fatal(err)
	}
	rt := &libcni.RuntimeConf{ContainerID: container, NetNS: ns.Path(), IfName: "eth0", Args: [][2]string{{"IgnoreUnknown", "1"},
		{"K8S_POD_NAMESPACE", spec.Namespace}, {"K8S_POD_NAME", spec.Name}, {"K8S_POD_UID", p.uid}}}
	return &chained{pod: p, list: list, rt: rt}
}

func (c *chained) addAll() error {
	return c.cni(func(cni *libcni.CNIConfig) error {
		_, err := cni.AddNetworkList(context.Background(), c.list, c.rt)
		return err
	})
}

func (c *chained) delAll() error {
	return c.cni(func(cni *libcni.CNIConfig) error { return cni.DelNetworkList(context.Background(), c.list, c.rt) })
}

func (c *chained) cni(do func(*libcni.CNIConfig) error) error {
	exec := &invoke.DefaultExec{RawExec: &invoke.RawExec{}}
	cni := libcni.NewCNIConfigWithCacheDir([]string{c.g.bin.Dir}, filepath.Join(c.g.node.Dir, "cni-cache"), exec)
	return c.g.Node.Do(func() error { return do(cni) })
}

// latch runs latch alone once more, as ADD is called again after a crash: with what the plugins before
// it made.
func (c *chained) latch(verb string) error {
	conf := c.g.entry()
	conf["prevResult"] = map[string]any{"cniVersion": "1.1.0",
		"interfaces": []any{map[string]any{"name": "eth0", "sandbox": c.Path()}},
		"ips": []any{
			map[string]any{"address": c.Spec.Addr4 + "/16", "interface": 0},
			map[string]any{"address": c.Spec.Addr6 + "/40", "interface": 0},
		}}
	_, err := c.g.invoke(verb, c.g.bin, c.env(), conf)
	if err != nil {
		return fmt.Errorf("%s by latch alone: %w", verb, err)
	}
	return nil
}
