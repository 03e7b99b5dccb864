package install

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"testing"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/invoke"
	current "github.com/containernetworking/cni/pkg/types/100"

	"github.com/latch-cni/latch/shared/testenv"
)

// criRuntime does what a container runtime does with a node's CNI configuration: it takes the lexically
// first of a folder, anew for every call.
type criRuntime struct {
	node     *testenv.NetNS
	confDir  string
	binDir   string
	cacheDir string
}

func (r *criRuntime) network() (*libcni.NetworkConfigList, error) {
	files, err := libcni.ConfFiles(r.confDir, []string{".conf", ".conflist", ".json"})
	if err != nil || len(files) == 0 {
		return nil, fmt.Errorf("no CNI configuration in %s: %w", r.confDir, err)
	}
	slices.Sort(files)
	return libcni.NetworkConfFromFile(files[0])
}

// sandbox is a pod as the runtime knows it.
type sandbox struct {
	*testenv.NetNS
	name, id string
	result   *current.Result
	rt       *libcni.RuntimeConf
}

func newSandbox(t *testing.T, name string) *sandbox {
	t.Helper()
	return sandboxIn(testenv.New(t), name)
}

func sandboxIn(ns *testenv.NetNS, name string) *sandbox {
	s := &sandbox{NetNS: ns, name: name, id: "id-" + name}
	s.rt = &libcni.RuntimeConf{ContainerID: s.id, NetNS: s.Path(), IfName: "eth0", Args: [][2]string{{"IgnoreUnknown", "1"},
		{"K8S_POD_NAMESPACE", "t1"}, {"K8S_POD_NAME", name}, {"K8S_POD_INFRA_CONTAINER_ID", s.id}, {"K8S_POD_UID", "uid-" + name}}}
	return s
}

func (r *criRuntime) add(s *sandbox) error {
	list, err := r.network()
	if err != nil {
		return err
	}
	return r.addBy(list, s)
}

// tryAdd is add with what runtimes do after it failed.
func (r *criRuntime) tryAdd(s *sandbox) error {
	err := r.add(s)
	if err != nil {
		err = errors.Join(err, r.del(s))
	}
	return err
}

func (r *criRuntime) addBy(list *libcni.NetworkConfigList, s *sandbox) error {
	return r.cni(func(c *libcni.CNIConfig) error {
		res, err := c.AddNetworkList(context.Background(), list, s.rt)
		if err != nil {
			return err
		}
		s.result, err = current.GetResult(res)
		return err
	})
}

func (r *criRuntime) del(s *sandbox) error {
	list, err := r.network()
	if err != nil {
		return err
	}
	return r.cni(func(c *libcni.CNIConfig) error { return c.DelNetworkList(context.Background(), list, s.rt) })
}

func (r *criRuntime) status() error {
	list, err := r.network()
	if err != nil {
		return err
	}
	return r.cni(func(c *libcni.CNIConfig) error { return c.GetStatusNetworkList(context.Background(), list) })
}

func (r *criRuntime) cni(do func(*libcni.CNIConfig) error) error {
	return r.node.Do(func() error {
		run := &invoke.DefaultExec{RawExec: &invoke.RawExec{}}
		return do(libcni.NewCNIConfigWithCacheDir([]string{r.binDir}, r.cacheDir, run))
	})
}

// hostInterface is the name of the node's end of the pod's veth.
func (s *sandbox) hostInterface() string {
	for _, i := range s.result.Interfaces {
		if i.Sandbox == "" {
			return i.Name
		}
	}
	return ""
}

func (r *criRuntime) conflist(name string) string { return filepath.Join(r.confDir, name) }
