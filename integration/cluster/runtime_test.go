package cluster

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/latch-cni/latch/integration/harness"
)

// serviceAddr is where pods find the API server: the first address of the services.
const serviceAddr = "10.96.0.1"

// machine is a node that has a kubelet and a containerd.
type machine struct {
	*node
	parts      string // folder with containerd and its kin
	containerd *harness.Process
	kubelet    *harness.Process
	service    *gate // between the pods and the API server
}

// newMachine makes a node with both running. Of Latch nothing is installed yet, but its image is there.
func newMachine(t *testing.T, cp *controlPlane) *machine {
	t.Helper()
	parts := runtimeDir()
	for _, name := range []string{"containerd", "ctr", "crictl", "runc", "pause.tar", "busybox.tar"} {
		part(t, parts, name)
	}
	part(t, k8sDir(), "kubelet")
	part(t, k8sDir(), "kubectl")
	m := &machine{node: newNode(t, cp, nodeOptions{idle: true}), parts: parts}
	m.apply = m.kubectlApply
	m.must(m.NS.Do(func() error {
		lo, err := netlink.LinkByName("lo")
		if err != nil {
			return err
		}
		return netlink.AddrAdd(lo, &netlink.Addr{IPNet: &net.IPNet{IP: net.ParseIP(serviceAddr).To4(), Mask: net.CIDRMask(32, 32)}})
	}))
	m.service = openGate(t, m.NS, cp, serviceAddr+":443")
	for _, dir := range []string{"cni-bin", "netd", "manifests", "log"} {
		m.must(os.Mkdir(m.path(dir), 0o755))
	}
	plugins, err := filepath.Glob(filepath.Join(filepath.Dir(m.bin.Latch()), "*"))
	m.must(err)
	for _, p := range plugins {
		if !strings.HasPrefix(filepath.Base(p), "latch") {
			m.must(os.Symlink(p, filepath.Join(m.path("cni-bin"), filepath.Base(p))))
		}
	}
	// As systemd has it: what is mounted below appears in containers.
	m.must(unix.Mount("", m.Bpffs, "", unix.MS_SHARED, ""))
	m.writeConfig()
	t.Cleanup(m.end)
	m.startContainerd()
	m.importImages()
	m.startKubelet()
	return m
}

func (m *machine) path(name string) string { return filepath.Join(m.Dir, name) }

func (m *machine) writeConfig() {
	m.t.Helper()
	write := func(name, text string) {
		m.must(os.WriteFile(m.path(name), []byte(strings.ReplaceAll(strings.ReplaceAll(text, "DIR", m.Dir), "PARTS", m.parts)), 0o600))
	}
	write("containerd.toml", `version = 3
root = "DIR/containerd"
state = "DIR/run"
disabled_plugins = ["io.containerd.internal.v1.opt", "io.containerd.nri.v1.nri"]
[grpc]
  address = "DIR/c.sock"
[ttrpc]
  address = "DIR/c.sock.ttrpc"
[plugins."io.containerd.cri.v1.images".pinned_images]
  sandbox = "local.test/pause:3.10"
[plugins."io.containerd.cri.v1.runtime"]
  restrict_oom_score_adj = true
  [plugins."io.containerd.cri.v1.runtime".cni]
    bin_dirs = ["DIR/cni-bin"]
    conf_dir = "DIR/netd"
    use_internal_loopback = true
  [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc.options]
      BinaryName = "PARTS/runc"
`)
	write("kubelet.yaml", `apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
staticPodPath: DIR/manifests
containerRuntimeEndpoint: unix://DIR/c.sock
cgroupDriver: cgroupfs
failCgroupV1: false
failSwapOn: false
readOnlyPort: 0
podLogsDir: DIR/log/pods
authentication: {anonymous: {enabled: true}, webhook: {enabled: false}}
authorization: {mode: AlwaysAllow}
enforceNodeAllocatable: []
localStorageCapacityIsolation: false
imageGCHighThresholdPercent: 100
evictionHard: {}
makeIPTablesUtilChains: false
fileCheckFrequency: 1s
syncFrequency: 5s
`)
	m.must(m.cp.writeKubeconfig(m.path("kubelet.kubeconfig"), gateAddr, m.cp.token))
	write("crictl.yaml", "runtime-endpoint: unix://DIR/c.sock\nimage-endpoint: unix://DIR/c.sock\ntimeout: 30\n")
	write("netd/10-primary.conflist", `{"cniVersion": "1.1.0", "name": "pods", "plugins": [
  {"type": "ptp", "ipam": {"type": "host-local", "dataDir": "DIR/ipam",
    "ranges": [[{"subnet": "198.18.80.0/24"}], [{"subnet": "fd00:18:80::/64"}]],
    "routes": [{"dst": "0.0.0.0/0"}, {"dst": "::/0"}]}},
  {"type": "portmap", "capabilities": {"portMappings": true}}
]}
`)
}

func (m *machine) startContainerd() {
	m.t.Helper()
	m.must(m.NS.Do(func() (err error) {
		m.containerd, err = m.run("containerd.log", filepath.Join(m.parts, "containerd"), "--config", m.path("containerd.toml"))
		return err
	}))
	m.eventually(20*time.Second, func() error {
		return errors.Join(m.containerd.Running(), m.tool("ctr", "-a", m.path("c.sock"), "version"))
	})
}

// run starts a program that finds the parts of the runtime.
func (m *machine) run(log, path string, args ...string) (*harness.Process, error) {
	return harness.Start(m.path(log), "/usr/bin/env", append([]string{"PATH=" + m.parts + ":" + os.Getenv("PATH"), path}, args...)...)
}

// tool runs a program of the runtime in the node's namespace.
func (m *machine) tool(name string, args ...string) error {
	_, err := m.ask(name, args...)
	return err
}

// ask runs a program of the runtime in the node's namespace, and returns what it prints.
func (m *machine) ask(name string, args ...string) (out string, err error) {
	err = m.NS.Do(func() error {
		raw, err := exec.Command(filepath.Join(m.parts, name), args...).CombinedOutput()
		if err != nil {
			err = fmt.Errorf("%s %v: %w: %s", name, args, err, raw)
		}
		out = string(raw)
		return err
	})
	return out, err
}

// crictl runs crictl, which must succeed, and returns what it prints.
func (m *machine) crictl(args ...string) string {
	m.t.Helper()
	out, err := m.ask("crictl", append([]string{"-c", m.path("crictl.yaml")}, args...)...)
	m.must(err)
	return out
}

// importImages builds the image of Latch and imports all.
func (m *machine) importImages() {
	m.t.Helper()
	for _, tar := range []string{filepath.Join(m.parts, "pause.tar"), filepath.Join(m.parts, "busybox.tar"), buildImage(m.t, "local.test/latch:1")} {
		m.must(m.tool("ctr", "-a", m.path("c.sock"), "-n", "k8s.io", "images", "import", tar))
	}
}

func (m *machine) startKubelet() {
	m.t.Helper()
	m.must(m.NS.Do(func() (err error) {
		m.kubelet, err = m.run("kubelet.log", part(m.t, k8sDir(), "kubelet"), "--config="+m.path("kubelet.yaml"),
			"--kubeconfig="+m.path("kubelet.kubeconfig"), "--root-dir="+m.path("kubelet"), "--cert-dir="+m.path("certs"),
			"--hostname-override="+m.Name(), "--node-ip="+nodeAddrs[0].String()+","+nodeAddrs[1].String())
		return err
	}))
	m.eventually(60*time.Second, func() error { return errors.Join(m.kubelet.Running(), m.isNodeReady()) })
}

// isNodeReady returns nil when kubelet says that the node is ready.
func (m *machine) isNodeReady() error {
	var out struct {
		Status struct {
			Conditions []struct{ Type, Status, Message string }
		}
	}
	if err := m.cp.get("/api/v1/nodes/"+m.Name(), &out); err != nil {
		return err
	}
	for _, c := range out.Status.Conditions {
		if c.Type == "Ready" {
			if c.Status == "True" {
				return nil
			}
			return fmt.Errorf("node is not ready: %s", c.Message)
		}
	}
	return errors.New("node has no condition yet")
}

// end stops kubelet, all pods and containerd, and removes what they leave.
func (m *machine) end() {
	if m.t.Failed() {
		for _, p := range []*harness.Process{m.kubelet, m.containerd} {
			if p != nil {
				m.t.Logf("%s: %v\n%s", filepath.Base(p.LogFile), p.Running(), p.LogTail(15))
			}
		}
	}
	if m.kubelet != nil {
		_ = m.kubelet.Kill()
	}
	var errs []error
	if m.containerd != nil {
		errs = append(errs, m.tool("crictl", "-c", m.path("crictl.yaml"), "rmp", "-fa"), m.containerd.Stop(10*time.Second))
	}
	errs = append(errs, unmountBelow(m.Dir, m.Bpffs), removeCgroups(), os.RemoveAll(m.path("kubelet")))
	results, err := filepath.Glob("/var/lib/cni/results/pods-*")
	errs = append(errs, err)
	for _, file := range results {
		errs = append(errs, os.Remove(file))
	}
	_ = os.Remove("/var/lib/kubelet/device-plugins/kubelet.sock") // kubelet's, at this place always
	for _, dir := range []string{"/var/lib/cni/results", "/var/lib/cni", "/var/lib/kubelet/device-plugins", "/var/lib/kubelet"} {
		_ = os.Remove(dir) // if it is empty
	}
	if err := errors.Join(errs...); err != nil {
		m.t.Error(err)
	}
}

// unmountBelow unmounts what kubelet and containerd mounted, but for one mount of the harness.
func unmountBelow(dir, but string) error {
	raw, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return err
	}
	var errs []error
	lines := strings.Split(strings.TrimSpace(string(raw)), "\n")
	for i := len(lines) - 1; i >= 0; i-- {
		point := strings.Fields(lines[i])[4]
		if strings.HasPrefix(point, dir+"/") && point != but && !strings.HasPrefix(point, filepath.Join(dir, "netns")+"/") {
			if err := unix.Unmount(point, unix.MNT_DETACH); err != nil {
				errs = append(errs, fmt.Errorf("unmount %s: %w", point, err))
			}
		}
	}
	return errors.Join(errs...)
}

// removeCgroups removes kubelet's groups, which are empty by now.
func removeCgroups() error {
	roots, err := filepath.Glob("/sys/fs/cgroup/*/kubepods")
	if err != nil {
		return err
	}
	for _, root := range append(roots, "/sys/fs/cgroup/kubepods") {
		var dirs []string
		err := filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
			if err == nil && e.IsDir() {
				dirs = append(dirs, path)
			}
			return err
		})
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		for i := len(dirs) - 1; i >= 0; i-- {
			_ = os.Remove(dirs[i]) // one with a process left is seen by the leak check of processes
		}
	}
	return nil
}

// keepSysctls puts back what kubelet changes of the machine.
func keepSysctls(t *testing.T) {
	t.Helper()
	for _, name := range []string{"vm/overcommit_memory", "kernel/panic", "kernel/panic_on_oops", "kernel/keys/root_maxkeys", "kernel/keys/root_maxbytes"} {
		path := "/proc/sys/" + name
		was, err := os.ReadFile(path)
		if err != nil {
			continue // not every machine lets them be read, nor changed
		}
		t.Cleanup(func() { _ = os.WriteFile(path, was, 0o600) })
	}
}
