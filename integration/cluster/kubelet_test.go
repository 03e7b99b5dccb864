package cluster

import (
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/latch-cni/latch/integration/harness"
	"github.com/latch-cni/latch/shared/state"
	"github.com/latch-cni/latch/shared/testenv"
)

// TestKubelet runs pods as a node of a cluster does: kubelet, containerd and runc call the chain, and
// latchd is the pod of conf/daemonset.yaml under its ServiceAccount.
func TestKubelet(t *testing.T) {
	testenv.RequireRoot(t)
	keepSysctls(t)
	keepLogs(t)
	cp := startControlPlane(t)
	m := newMachine(t, cp)
	m.prepareAccounts()
	old := m.launch("old", object{"app": "old"})
	m.waitReady(m.ns, old.name)
	begin := time.Now()
	m.installLatch("latch-1")
	t.Logf("latchd is ready %v after its pod was created", time.Since(begin).Round(100*time.Millisecond))
	m.isAdopted(old)

	k := &kubeletTest{machine: m, policy: m.newPolicy("n", object{"app": "b"}).apply()}
	k.a, k.b, k.c = m.run3("a", "b", "c")
	k.policy.from(8080, k.a.addrs...).lists(k.b).applyEndpoint()
	k.b.serve(8080)
	k.a.becomes("the peer of the policy", allow, k.b, 8080)
	k.steady("start")
	k.c.stays("a pod without policy", allow, k.a, 8080, 1)
	m.newPolicy("o", object{"app": "old"}).from(9090, k.a.addrs...).lists(old).apply()
	k.c.becomes("a pod that was there before Latch, and is adopted", deny, old, 9090)
	k.a.stays("the peer of its policy", allow, old, 9090, 1)
	m.reportReadiness()
	for _, step := range []struct {
		name string
		run  func(*testing.T)
	}{
		{"latchd is replaced", k.replaceLatch},
		{"kubelet is killed", k.killKubelet},
		{"containerd is killed", k.killContainerd},
		{"static pod", k.staticPod},
		{"pods are replaced", k.replacePods},
		{"Latch is uninstalled", k.uninstall},
	} {
		t.Run(step.name, step.run)
	}
}

// prepareAccounts makes what controllers of a cluster make: the ServiceAccount of the test's namespace,
// and the certificate by which pods trust the API server.
func (m *machine) prepareAccounts() {
	m.t.Helper()
	cert, err := os.ReadFile(m.cp.path("certs/apiserver.crt"))
	m.must(err)
	for _, namespace := range []string{m.ns, "kube-system"} {
		m.must(m.cp.apply(object{"apiVersion": "v1", "kind": "ServiceAccount", "metadata": object{"name": "default", "namespace": namespace}}))
		m.must(m.cp.apply(object{"apiVersion": "v1", "kind": "ConfigMap", "metadata": object{"name": "kube-root-ca.crt", "namespace": namespace},
			"data": object{"ca.crt": string(cert)}}))
	}
}

// installLatch does what an operator does on a node with running pods, and waits until latchd is ready. The
// node is ready all the while, though latchd takes long to know policy: kubelet asks for STATUS every 5 s.
func (m *machine) installLatch(name string) {
	m.t.Helper()
	release := m.service.hold("/policyendpoints")
	defer release()
	m.applyConf("")
	m.podOf("latch", name)
	notReady := ""
	look := func() {
		if err := m.isNodeReady(); err != nil {
			notReady = err.Error()
		}
	}
	m.eventually(60*time.Second, func() error {
		look()
		st, err := m.store().ReadStatus()
		if err == nil && !st.Known && st.Node == "" {
			err = errors.New("latchd has not started yet")
		}
		return err
	})
	for end := time.Now().Add(12 * time.Second); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		look()
	}
	if m.isReady("kube-system", name) == nil {
		m.t.Error("latchd is ready without having read policy")
	}
	release()
	m.eventually(60*time.Second, func() error {
		look()
		return m.isReady("kube-system", name)
	})
	if notReady != "" {
		m.t.Errorf("while Latch was installed the node's pods were taken out of their Services: %s", notReady)
	}
}

// isAdopted requires that a pod that ran before Latch has an attachment, and notes its addresses.
func (m *machine) isAdopted(p *pod) {
	m.t.Helper()
	att, err := m.attachment(p.uid)
	m.must(err)
	if !att.Adopted || att.Phase != state.PhaseEnforced || len(att.Interfaces) != 1 {
		m.t.Fatalf("attachment %+v, want an adopted one in force", att)
	}
	p.addrs = []netip.Addr{att.Interfaces[0].Addr4, att.Interfaces[0].Addr6}
}

// keepLogs leaves the machine without logs of Latch, if it has none: the plugin is asked for its STATUS
// before latchd has told it to log elsewhere.
func keepLogs(t *testing.T) {
	t.Helper()
	const logs = "/var/log/latch"
	if _, err := os.Stat(logs); !errors.Is(err, fs.ErrNotExist) {
		return
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(logs); err != nil {
			t.Error(err)
		}
	})
}

// applyConf applies a folder of conf/ with kubectl, as an operator does, for the image that the test has
// built and on folders of the test in place of those of the machine.
func (m *machine) applyConf(folder string) {
	m.t.Helper()
	edits := []string{
		"newName: latch", "newName: local.test/latch", "newTag: latest", `newTag: "1"`,
		"/sys/fs/bpf", m.Bpffs, "/run/latch", m.StateDir, "/var/log/latch", m.path("log"),
		"{path: /opt/cni/bin,", "{path: " + m.path("cni-bin") + ",", "{path: /etc/cni/net.d,", "{path: " + m.path("netd") + ",",
		"        - install\n", "        - install\n        - --state-dir=" + m.StateDir + "\n        - --bpffs=" + m.Bpffs + "\n",
		"        - --health-addr=:8163\n", "        - --health-addr=:8163\n        - --state-dir=" + m.StateDir + "\n        - --bpffs=" + m.Bpffs +
			"\n        - --plugin-log-file=" + m.path("log/latch.log") + "\n",
		"[uninstall", "[uninstall, --state-dir=" + m.StateDir + ", --bpffs=" + m.Bpffs,
	}
	if !mayRaiseLimits(m.t) { // and needs not, on kernels after 5.11
		edits = append(edits, "            - SYS_RESOURCE\n", "", ", SYS_RESOURCE]", "]")
	}
	from, to := filepath.Join("../../conf", folder), filepath.Join(m.path("conf"), folder)
	entries, err := os.ReadDir(from)
	m.must(err)
	m.must(os.MkdirAll(to, 0o755))
	for _, e := range entries {
		if e.IsDir() {
			continue
		}
		raw, err := os.ReadFile(filepath.Join(from, e.Name()))
		m.must(err)
		m.must(os.WriteFile(filepath.Join(to, e.Name()), []byte(strings.NewReplacer(edits...).Replace(string(raw))), 0o600))
	}
	m.t.Log(m.kubectl("apply", "--server-side", "-k", to))
}

// mayRaiseLimits says whether this machine has CAP_SYS_RESOURCE to give away.
func mayRaiseLimits(t *testing.T) bool {
	t.Helper()
	raw, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(raw), "CapBnd:")
	caps, err := strconv.ParseUint(strings.Fields(rest)[0], 16, 64)
	if err != nil {
		t.Fatal(err)
	}
	return caps&(1<<unix.CAP_SYS_RESOURCE) != 0
}

// isReady returns nil when kubelet says that a pod is ready.
func (m *machine) isReady(namespace, name string) error {
	var out struct {
		Status struct {
			Phase                                    string
			Conditions                               []struct{ Type, Status, Reason, Message string }
			InitContainerStatuses, ContainerStatuses []struct{ State object }
		}
	}
	if err := m.cp.get("/api/v1/namespaces/"+namespace+"/pods/"+name, &out); err != nil {
		return err
	}
	for _, c := range out.Status.Conditions {
		if c.Type == "Ready" && c.Status == "True" {
			return nil
		}
	}
	return fmt.Errorf("pod %s is not ready: %+v\n%s", name, out.Status, m.podLogs(namespace, name))
}

// podLogs is the end of what a pod's containers wrote.
func (m *machine) podLogs(namespace, name string) string {
	files, _ := filepath.Glob(m.path("log/pods/" + namespace + "_" + name + "_*/*/*.log"))
	var all []string
	for _, f := range files {
		raw, _ := os.ReadFile(f)
		lines := strings.Split(strings.TrimSpace(string(raw)), "\n")
		all = append(all, lines[max(0, len(lines)-5):]...)
	}
	return strings.Join(all, "\n")
}

// podObject is a pod that does nothing but answer its probe.
func (m *machine) podObject(name string, labels object) object {
	return object{"apiVersion": "v1", "kind": "Pod", "metadata": object{"name": name, "namespace": m.ns, "labels": labels},
		"spec": object{"nodeName": m.Name(), "automountServiceAccountToken": false, "enableServiceLinks": false,
			"terminationGracePeriodSeconds": 1, "tolerations": []object{{"operator": "Exists"}},
			"containers": []object{{"name": "c", "image": "local.test/busybox:1", "imagePullPolicy": "Never",
				"command":        []string{"sh", "-c", "nc -ll -p 9090 -e /bin/cat"},
				"readinessProbe": object{"tcpSocket": object{"port": 9090}, "periodSeconds": 1}}}}}
}

// settle waits until kubelet says that a pod is ready, and enters its namespace.
func (m *machine) settle(p *pod) *pod {
	m.t.Helper()
	m.waitReady(m.ns, p.name)
	att, err := m.attachment(p.uid)
	m.must(err)
	ns, err := harness.OpenNetNS(att.Netns)
	m.must(err)
	p.Sandbox = &harness.Sandbox{NS: ns}
	p.addrs = []netip.Addr{att.Interfaces[0].Addr4, att.Interfaces[0].Addr6}
	m.t.Cleanup(p.leave)
	return p
}

// leave leaves the pod's namespace.
func (p *pod) leave() {
	if p.Sandbox != nil {
		_ = p.NS.Close()
		p.Sandbox = nil
	}
}

// attachment is that of the pod with a uid.
func (m *machine) attachment(uid string) (state.Attachment, error) {
	all, err := m.store().ListAttachments()
	for _, att := range all {
		if att.PodUID == uid {
			return att, err
		}
	}
	return state.Attachment{}, errors.Join(fmt.Errorf("no attachment of the pod with uid %s", uid), err)
}

// run3 launches three pods together, each with its name for a label.
func (m *machine) run3(names ...string) (a, b, c *pod) {
	m.t.Helper()
	var pods []*pod
	for _, name := range names {
		pods = append(pods, m.launch(name, object{"app": name}))
	}
	for _, p := range pods {
		m.settle(p)
	}
	return pods[0], pods[1], pods[2]
}

// reportReadiness logs how long before ADD each pod's record was there.
func (m *machine) reportReadiness() {
	m.t.Helper()
	attachments, err := m.store().ListAttachments()
	m.must(err)
	var early []time.Duration
	for _, att := range attachments {
		if att.Adopted {
			continue
		}
		rec, err := m.store().ReadPod(att.PodNamespace, att.PodName)
		m.must(err)
		early = append(early, att.CreatedAt.Sub(rec.PublishedAt))
	}
	m.t.Logf("record published before ADD: %s", distribution(early))
}
