package cluster

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/yaml"
)

// kubeletTest is a policy that lets pod a reach pod b, and nobody else.
type kubeletTest struct {
	*machine
	policy  *policy
	a, b, c *pod
}

// use makes a step's test the one that fails.
func (k *kubeletTest) use(t *testing.T) {
	before := k.t
	k.t = t
	t.Cleanup(func() { k.t = before })
}

func (k *kubeletTest) steady(what string) {
	k.t.Helper()
	k.c.stays(what, deny, k.b, 8080, 1)
	k.a.stays(what, allow, k.b, 8080, 1)
}

// steadyUntil requires the verdicts until something has come about.
func (k *kubeletTest) steadyUntil(what string, patience time.Duration, check func() error) {
	k.t.Helper()
	begin := time.Now()
	for {
		k.steady(what)
		err := check()
		if err == nil {
			k.t.Logf("%s after %v", what, time.Since(begin).Round(100*time.Millisecond))
			return
		}
		if time.Since(begin) > patience {
			k.t.Fatalf("%s: %v", what, err)
		}
	}
}

// edit changes the policy to and fro, and requires both to take effect.
func (k *kubeletTest) edit(what string) {
	k.t.Helper()
	was := k.policy.peers
	k.policy.from(8080, k.c.addrs...).applyEndpoint()
	k.c.becomes(what+": an edit", allow, k.b, 8080)
	k.policy.peers = was
	k.policy.applyEndpoint()
	k.c.becomes(what+": the edit taken back", deny, k.b, 8080)
}

// replaceLatch deletes latchd's pod and creates another, as the DaemonSet does for an upgrade.
func (k *kubeletTest) replaceLatch(t *testing.T) {
	k.use(t)
	const pods = "/api/v1/namespaces/kube-system/pods/"
	k.terminate("kube-system", "latch-1")
	notReady := ""
	k.steadyUntil("latchd is gone", 30*time.Second, func() error {
		if err := k.isNodeReady(); err != nil {
			notReady = err.Error()
		}
		var r *refusal
		if err := k.cp.get(pods+"latch-1", nil); !errors.As(err, &r) || r.code != 404 {
			return fmt.Errorf("the pod is still there: %w", err)
		}
		return nil
	})
	for end := time.Now().Add(7 * time.Second); time.Now().Before(end); { // kubelet asks for STATUS every 5 s
		k.steady("without latchd")
		if err := k.isNodeReady(); err != nil {
			notReady = err.Error()
		}
	}
	k.podOf("latch", "latch-2")
	k.steadyUntil("latchd is ready again", 60*time.Second, func() error { return k.isReady("kube-system", "latch-2") })
	k.edit("after the replacement")
	k.askInside()
	if notReady != "" {
		t.Errorf("the node was not ready meanwhile, and its pods were taken out of their Services: %s", notReady)
	}
}

func (k *kubeletTest) killKubelet(t *testing.T) {
	k.use(t)
	k.must(k.kubelet.Kill())
	k.steady("without kubelet")
	k.edit("without kubelet")
	k.startKubelet()
	k.steady("kubelet is back")
}

func (k *kubeletTest) killContainerd(t *testing.T) {
	k.use(t)
	k.must(k.containerd.Kill())
	k.steady("without containerd")
	k.startContainerd()
	k.steadyUntil("the node is ready again", 60*time.Second, k.isNodeReady)
	k.edit("after containerd was restarted")
}

// staticPod lets kubelet run a pod of its manifest folder: the uid that the runtime knows is not the one
// of its object.
func (k *kubeletTest) staticPod(t *testing.T) {
	k.use(t)
	o := k.podObject("static", object{"app": "b"})
	delete(o["spec"].(object), "nodeName")
	raw, err := yaml.Marshal(o)
	k.must(err)
	file := k.path("manifests/static.yaml")
	k.must(os.WriteFile(file, raw, 0o600))
	p := &pod{n: k.node, name: "static-" + k.Name()}
	k.eventually(60*time.Second, func() error { return k.isReady(k.ns, p.name) })
	var mirror struct {
		Metadata struct {
			UID         string
			Annotations map[string]string
		}
	}
	k.must(k.cp.get(p.path(), &mirror))
	p.uid = mirror.Metadata.Annotations["kubernetes.io/config.mirror"]
	if p.uid == mirror.Metadata.UID || p.uid == "" {
		t.Fatalf("uid %q of the pod, %q of its object: nothing is tested", p.uid, mirror.Metadata.UID)
	}
	k.settle(p).serve(8080)
	k.a.stays("static pod", allow, p, 8080, 1)
	k.c.stays("static pod", deny, p, 8080, 1)
	p.leave()
	k.must(os.Remove(file))
	p.uid = mirror.Metadata.UID // of the object
	k.gone(p)
}

// gone waits until a pod's object and its attachment are gone. A successor may have its name.
func (k *kubeletTest) gone(p *pod) {
	k.t.Helper()
	k.eventually(60*time.Second, func() error {
		var now struct{ Metadata struct{ UID string } }
		var r *refusal
		err := k.cp.get(p.path(), &now)
		if isGone := errors.As(err, &r) && r.code == 404; !isGone && (err != nil || now.Metadata.UID == p.uid) {
			return fmt.Errorf("pod %s is still there: %v", p.name, err)
		}
		if att, err := k.attachment(p.uid); err == nil {
			return fmt.Errorf("pod %s still has attachment %s", p.name, att.ContainerID)
		}
		return nil
	})
}

// replacePods deletes the pod of a policy and creates its successor, by turns under the same name, while
// the endpoints object lists the one that goes.
func (k *kubeletTest) replacePods(t *testing.T) {
	k.use(t)
	for i := range 4 {
		old := k.b
		old.leave()
		k.terminate(k.ns, old.name)
		name := old.name
		if i%2 == 0 {
			name = fmt.Sprintf("b-%d", i)
		} else {
			k.gone(old) // its name is free
		}
		k.b = k.launch(name, object{"app": "b"})
		k.policy.lists(old).applyEndpoint()
		k.settle(k.b).serve(8080)
		k.steady(fmt.Sprintf("replaced by %s, which is not listed", strings.TrimPrefix(k.b.name, "b-")))
		k.policy.lists(k.b).applyEndpoint()
		k.edit("after the replacement")
		k.gone(old)
	}
}

// askInside runs latchctl in the container of latchd, with no more rights than that has.
func (k *kubeletTest) askInside() {
	k.t.Helper()
	id := strings.TrimSpace(k.crictl("ps", "--name", "^latchd$", "-q"))
	for _, args := range [][]string{{"status"}, {"check"}, {"rules", k.ns + "/" + k.b.name}} {
		out := k.crictl(append([]string{"exec", "-s", id, "/latchctl", "--state-dir", k.StateDir, "--bpffs", k.Bpffs}, args...)...)
		if !strings.Contains(out, k.b.name) && args[0] != "check" {
			k.t.Errorf("latchctl %v says nothing of pod %s:\n%s", args, k.b.name, out)
		}
	}
}

// uninstall does what an operator does: latchd's pod goes, then that of conf/uninstall cleans the node. Pods
// keep running, and are open.
func (k *kubeletTest) uninstall(t *testing.T) {
	k.use(t)
	k.terminate("kube-system", "latch-2")
	k.kubectl("wait", "-n", "kube-system", "--for=delete", "--timeout=60s", "pod/latch-2")
	k.steady("before it is uninstalled")
	k.applyConf("uninstall")
	k.podOf("latch-uninstall", "latch-uninstall")
	k.waitReady("kube-system", "latch-uninstall")
	for _, file := range []string{k.path("netd/05-latch.conflist"), k.path("cni-bin/latch"), filepath.Join(k.Bpffs, "latch")} {
		if _, err := os.Lstat(file); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s is still there: %v", file, err)
		}
	}
	left, err := os.ReadDir(k.StateDir)
	if err != nil || len(left) > 0 {
		t.Errorf("records: %v, %v", left, err)
	}
	k.c.becomes("uninstalled", allow, k.b, 8080)
	k.terminate("kube-system", "latch-uninstall")
	k.kubectl("wait", "-n", "kube-system", "--for=delete", "--timeout=60s", "pod/latch-uninstall")
}
