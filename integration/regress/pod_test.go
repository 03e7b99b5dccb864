package regress

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"time"

	"github.com/containernetworking/cni/pkg/types"

	"github.com/latch-cni/latch/integration/harness"
	"github.com/latch-cni/latch/shared/testenv"
)

// pod is one sandbox of a pod.
type pod struct {
	*testenv.Pod
	g         *ground
	uid       string
	container string
	took      time.Duration // of ADD
}

// pod makes a sandbox and connects it as the VPC CNI does. The test calls it name in packets and
// policies; a sandbox of the same name takes over. latch has not run for it.
func (g *ground) pod(name string, spec testenv.PodSpec) *pod {
	g.t.Helper()
	return g.podIn(name, testenv.New(g.t), spec)
}

// podIn is pod in a network namespace that is there already.
func (g *ground) podIn(name string, ns *testenv.NetNS, spec testenv.PodSpec) *pod {
	g.t.Helper()
	p := &pod{Pod: g.PodIn(g.t, ns, spec), g: g}
	g.mu.Lock()
	g.next++
	p.container, p.uid = fmt.Sprintf("c%d", g.next), "uid-"+spec.Name
	g.mu.Unlock()
	g.names[name] = nil
	if p.Addr4.IsValid() {
		g.names[name] = append(g.names[name], p.Addr4)
	}
	if p.Addr6.IsValid() {
		g.names[name] = append(g.names[name], p.Addr6)
	}
	g.ends[name] = g.newEnd(name, p.NetNS, p.IfName, p.HostMAC)
	return p
}

// start publishes the pod's object and adds the pod.
func (g *ground) start(name string, spec testenv.PodSpec) *pod {
	g.t.Helper()
	p := g.pod(name, spec)
	p.publish(nil)
	p.add()
	return p
}

// publish writes the Pod object; labels nil means those of the spec.
func (p *pod) publish(labels map[string]string) {
	p.g.t.Helper()
	p.g.write(p.file(), p.manifest(labels, nil))
}

func (p *pod) file() string { return podFile(p.Spec.Namespace, p.Spec.Name) }

func podFile(namespace, name string) string {
	return fmt.Sprintf("pod-%s-%.100s-%d.json", namespace, name, len(name)) // file names end at 255
}

// manifest is the Pod object. more are further fields of its metadata.
func (p *pod) manifest(labels map[string]string, more map[string]any) []byte {
	if labels == nil {
		labels = p.Spec.Labels
	}
	meta := map[string]any{"namespace": p.Spec.Namespace, "name": p.Spec.Name, "uid": p.uid, "labels": labels}
	maps.Copy(meta, more)
	return mustJSON(map[string]any{"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": map[string]any{"nodeName": p.g.node.Name()}})
}

func mustJSON(v any) []byte {
	raw, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("regress: %v", err))
	}
	return append(raw, '\n')
}

// add runs ADD, which must succeed.
func (p *pod) add() {
	p.g.t.Helper()
	if err := p.tryAdd(nil); err != nil {
		p.g.t.Fatalf("ADD %s %s/%s: %v", p.container, p.Spec.Namespace, p.Spec.Name, err)
	}
}

// tryAdd runs ADD with more keys of the plugin's entry. It may be called by any goroutine.
func (p *pod) tryAdd(keys map[string]any) error {
	p.g.mu.Lock()
	p.g.added[p.container] = p
	p.g.mu.Unlock()
	begin := time.Now()
	out, err := p.g.invoke("ADD", p.g.bin, p.env(), p.conf(keys))
	p.took = time.Since(begin)
	if err != nil {
		return err
	}
	var want, got any
	if err := errors.Join(json.Unmarshal([]byte(out), &got), json.Unmarshal(mustJSON(p.PrevResult()), &want)); err != nil {
		return fmt.Errorf("output %q: %w", out, err)
	}
	if !bytes.Equal(mustJSON(got), mustJSON(want)) {
		return fmt.Errorf("output %s is not prevResult %s", mustJSON(got), mustJSON(want))
	}
	return nil
}

// del runs DEL, which must succeed.
func (p *pod) del() {
	p.g.t.Helper()
	if _, err := p.tryDel(); err != nil {
		p.g.t.Fatalf("DEL %s %s/%s: %v", p.container, p.Spec.Namespace, p.Spec.Name, err)
	}
}

func (p *pod) tryDel() (string, error) {
	p.g.mu.Lock()
	delete(p.g.added, p.container)
	p.g.mu.Unlock()
	return p.g.invoke("DEL", p.g.bin, p.env(), p.conf(nil))
}

// end is what happens after DEL: the sandbox goes, and its host veth with it.
func (p *pod) end() {
	p.g.t.Helper()
	p.g.Node.DelLink(p.g.t, p.HostName)
}

// gone deletes the pod: DEL, the sandbox, its Pod object.
func (p *pod) gone() {
	p.g.t.Helper()
	p.del()
	p.end()
	p.g.remove(p.file())
}

func (p *pod) env() map[string]string {
	return map[string]string{
		"CNI_CONTAINERID": p.container, "CNI_NETNS": p.Path(), "CNI_IFNAME": p.IfName, "CNI_PATH": p.g.bin.Dir,
		"CNI_ARGS": "IgnoreUnknown=1;K8S_POD_UID=" + p.uid + ";K8S_POD_NAMESPACE=" + p.Spec.Namespace + ";K8S_POD_NAME=" + p.Spec.Name,
	}
}

// conf is the plugin's entry as the runtime hands it on.
func (p *pod) conf(keys map[string]any) map[string]any {
	c := p.g.entry()
	c["prevResult"] = p.PrevResult()
	maps.Copy(c, keys)
	return c
}

func (g *ground) entry() map[string]any {
	return map[string]any{"cniVersion": "1.1.0", "name": "pods", "type": "latch",
		"stateDir": g.node.StateDir, "bpffs": g.node.Bpffs, "logFile": g.node.LatchLog}
}

// invoke runs the plugin on the node as a runtime does. A refusal is a *types.Error. It may be called
// by any goroutine.
func (g *ground) invoke(verb string, bin *harness.Binaries, env map[string]string, conf map[string]any) (string, error) {
	cmd := exec.Command(bin.Latch())
	cmd.Stdin = bytes.NewReader(mustJSON(conf))
	cmd.Env = append(os.Environ(), "CNI_COMMAND="+verb)
	for key, value := range env {
		cmd.Env = append(cmd.Env, key+"="+value)
	}
	return g.run(cmd)
}

// run runs a plugin and takes its output apart.
func (g *ground) run(cmd *exec.Cmd) (string, error) {
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	err := g.Node.Do(cmd.Run)
	exit := (*exec.ExitError)(nil)
	switch {
	case err == nil:
		return out.String(), nil
	case !errors.As(err, &exit) || exit.ExitCode() < 0:
		return out.String(), fmt.Errorf("run plugin: %w: %s", err, errOut.String())
	}
	refusal := &types.Error{}
	if json.Unmarshal(out.Bytes(), refusal) != nil || refusal.Code == 0 || refusal.Msg == "" {
		return "", fmt.Errorf("plugin failed (%w) without a CNI error on stdout: %q, stderr %q", err, out.String(), errOut.String())
	}
	return "", refusal
}
