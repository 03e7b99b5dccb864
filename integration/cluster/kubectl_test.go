package cluster

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// kubectl runs kubectl as administrator, and returns what it prints. Objects, if there are any, are its
// standard input.
func (cp *controlPlane) kubectl(t *testing.T, args []string, objects ...object) (string, error) {
	t.Helper()
	bin, config := part(t, k8sDir(), "kubectl"), cp.path("admin.kubeconfig")
	if err := cp.writeKubeconfig(config, serverAddr, cp.token); err != nil {
		return "", err
	}
	var in bytes.Buffer
	for _, o := range objects {
		raw, err := yaml.Marshal(o)
		if err != nil {
			return "", err
		}
		_, _ = io.WriteString(&in, "---\n"+string(raw))
	}
	cmd := exec.Command(bin, append([]string{"--kubeconfig", config, "--cache-dir", cp.path("kubectl")}, args...)...)
	var out, errs strings.Builder
	cmd.Stdin, cmd.Stdout, cmd.Stderr = &in, &out, &errs
	if err := cp.ns.Do(cmd.Run); err != nil {
		return "", fmt.Errorf("kubectl %s: %w: %s", strings.Join(args, " "), err, errs.String())
	}
	return out.String(), nil
}

// kubectl runs kubectl, which must succeed, and returns what it prints.
func (m *machine) kubectl(args ...string) string {
	m.t.Helper()
	out, err := m.cp.kubectl(m.t, args)
	m.must(err)
	return out
}

// kubectlApply applies an object as a user does.
func (m *machine) kubectlApply(o object) error {
	m.t.Helper()
	_, err := m.cp.kubectl(m.t, []string{"apply", "-f", "-"}, o)
	return err
}

// launch creates a Pod object and leaves the rest to kubelet.
func (m *machine) launch(name string, labels object) *pod {
	m.t.Helper()
	p := &pod{n: m.node, name: name}
	var err error
	p.uid, err = m.cp.kubectl(m.t, []string{"apply", "-f", "-", "-o", "jsonpath={.metadata.uid}"}, m.podObject(name, labels))
	m.must(err)
	return p
}

// waitReady waits until kubelet says that a pod is ready.
func (m *machine) waitReady(namespace, name string) {
	m.t.Helper()
	if _, err := m.cp.kubectl(m.t, []string{"wait", "-n", namespace, "--for=condition=Ready", "--timeout=60s", "pod/" + name}); err != nil {
		m.t.Fatalf("%v: %v", err, m.isReady(namespace, name))
	}
}

// terminate deletes a pod as a user does, without waiting for its end.
func (m *machine) terminate(namespace, name string) {
	m.t.Helper()
	m.kubectl("delete", "pod", "-n", namespace, "--wait=false", name)
}

// podOf creates the pod that a DaemonSet's controller, which the test has not, would make for the node.
func (m *machine) podOf(daemonset, name string) {
	m.t.Helper()
	var out struct {
		Spec struct {
			Template struct {
				Metadata object
				Spec     object
			}
		}
	}
	m.must(json.Unmarshal([]byte(m.kubectl("get", "daemonset", "-n", "kube-system", daemonset, "-o", "json")), &out))
	template := out.Spec.Template
	for _, v := range template.Spec["volumes"].([]any) {
		path, ok := v.(object)["hostPath"].(object)["path"].(string)
		if !ok || !strings.HasPrefix(path, m.Dir+"/") {
			m.t.Fatalf("volume %v is not of the test", v)
		}
	}
	template.Metadata["name"], template.Metadata["namespace"] = name, "kube-system"
	template.Spec["nodeName"] = m.Name()
	_, err := m.cp.kubectl(m.t, []string{"create", "-f", "-"}, object{"apiVersion": "v1", "kind": "Pod", "metadata": template.Metadata, "spec": template.Spec})
	m.must(err)
}
