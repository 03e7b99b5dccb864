package harness

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"time"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/invoke"
	"github.com/containernetworking/cni/pkg/types"
	current "github.com/containernetworking/cni/pkg/types/100"
)

// Pod is a pod as the runtime knows it.
type Pod struct {
	Namespace, Name, UID string
	Addrs                []netip.Addr // not with Config.HostLocal
}

// Key is "namespace/name".
func (p Pod) Key() string { return p.Namespace + "/" + p.Name }

// Sandbox is a pod's namespace and its attachment to the node.
type Sandbox struct {
	Pod
	ContainerID string
	NS          *NetNS
	Result      *current.Result
	Took        time.Duration // of ADD

	list *libcni.NetworkConfigList
	rt   *libcni.RuntimeConf
}

// HostInterface is the name of the host end of the pod's veth.
func (s *Sandbox) HostInterface() string {
	for _, i := range s.Result.Interfaces {
		if i.Sandbox == "" {
			return i.Name
		}
	}
	return ""
}

// NewSandbox makes a pod's namespace without running the chain: for tests that need a sender in it
// before ADD. AddSandbox then connects it.
func (n *Node) NewSandbox(p Pod) (*Sandbox, error) {
	list, err := n.chain(p)
	if err != nil {
		return nil, fmt.Errorf("pod %s: %w", p.Key(), err)
	}
	s := n.sandbox(p, list)
	if s.NS, err = NewNetNS(n.netnsDir(), s.ContainerID); err != nil {
		return nil, fmt.Errorf("pod %s: %w", p.Key(), err)
	}
	n.mu.Lock()
	n.sandboxes[s.ContainerID] = s
	n.mu.Unlock()
	err = s.NS.Do(func() error { return errors.Join(sysctl(quietIPv6), setUpLoopback()) })
	if err != nil {
		return nil, errors.Join(fmt.Errorf("pod %s: %w", p.Key(), err), n.drop(s))
	}
	s.rt.NetNS = s.NS.Path
	return s, nil
}

// sandbox gives a pod its next container id.
func (n *Node) sandbox(p Pod, list *libcni.NetworkConfigList) *Sandbox {
	n.mu.Lock()
	n.created++
	id := fmt.Sprintf("%s-%06d", n.cfg.Name, n.created)
	n.mu.Unlock()
	args := [][2]string{{"IgnoreUnknown", "1"}, {"K8S_POD_NAMESPACE", p.Namespace}, {"K8S_POD_NAME", p.Name},
		{"K8S_POD_INFRA_CONTAINER_ID", id}}
	if p.UID != "" {
		args = append(args, [2]string{"K8S_POD_UID", p.UID})
	}
	return &Sandbox{Pod: p, ContainerID: id, list: list,
		rt: &libcni.RuntimeConf{ContainerID: id, IfName: podIfName, Args: args}}
}

// AddSandbox runs ADD of the chain. The error is that of the plugin that refused.
func (n *Node) AddSandbox(ctx context.Context, s *Sandbox) error {
	begin := time.Now()
	err := n.cni(func(c *libcni.CNIConfig) error {
		res, err := c.AddNetworkList(ctx, s.list, s.rt)
		if err != nil {
			return err
		}
		s.Result, err = current.GetResult(res)
		return err
	})
	s.Took = time.Since(begin)
	if err != nil {
		return fmt.Errorf("ADD pod %s: %w", s.Key(), err)
	}
	return nil
}

// AddPod makes a sandbox and connects it. After an error nothing of it is left.
func (n *Node) AddPod(ctx context.Context, p Pod) (*Sandbox, error) {
	s, err := n.NewSandbox(p)
	if err != nil {
		return nil, err
	}
	if err := n.AddSandbox(ctx, s); err != nil {
		return nil, errors.Join(err, n.DelPod(ctx, s))
	}
	return s, nil
}

// DelSandbox runs DEL of the chain and leaves the namespace.
func (n *Node) DelSandbox(ctx context.Context, s *Sandbox) error {
	err := n.cni(func(c *libcni.CNIConfig) error { return c.DelNetworkList(ctx, s.list, s.rt) })
	if err != nil {
		return fmt.Errorf("DEL pod %s: %w", s.Key(), err)
	}
	return nil
}

// CheckSandbox runs CHECK of the chain.
func (n *Node) CheckSandbox(ctx context.Context, s *Sandbox) error {
	err := n.cni(func(c *libcni.CNIConfig) error { return c.CheckNetworkList(ctx, s.list, s.rt) })
	if err != nil {
		return fmt.Errorf("CHECK pod %s: %w", s.Key(), err)
	}
	return nil
}

// DelPod runs DEL and removes the sandbox.
func (n *Node) DelPod(ctx context.Context, s *Sandbox) error {
	return errors.Join(n.DelSandbox(ctx, s), n.drop(s))
}

func (n *Node) drop(s *Sandbox) error {
	n.mu.Lock()
	delete(n.sandboxes, s.ContainerID)
	n.mu.Unlock()
	return s.NS.Close()
}

// cni hands f a libcni whose plugins run in the node's namespace, on a thread of its own: as a runtime, it
// lets no pod wait for another.
func (n *Node) cni(f func(*libcni.CNIConfig) error) error {
	ns, err := OpenNetNS(n.NS.Path)
	if err != nil {
		return err
	}
	defer func() { _ = ns.Close() }()
	return ns.Do(func() error {
		stderr, err := os.OpenFile(filepath.Join(n.Dir, "plugins.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
		if err != nil {
			return fmt.Errorf("open log of plugins: %w", err)
		}
		defer func() { _ = stderr.Close() }()
		run := &invoke.DefaultExec{RawExec: &invoke.RawExec{Stderr: stderr}}
		err = f(libcni.NewCNIConfigWithCacheDir([]string{n.cfg.Binaries.Dir}, n.cacheDir(), run))
		if e := (*types.Error)(nil); errors.As(err, &e) {
			return fmt.Errorf("code %d: %w", e.Code, err)
		}
		return err
	})
}
