package main

import (
	"bufio"
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

// The arguments that the manifest gives, with the settings as they come, are ones that latchd takes.
func TestManifestFitsTheFlags(t *testing.T) {
	env := settings(t)
	for name, value := range env {
		t.Setenv(name, value)
	}
	t.Setenv("NODE_NAME", "node")
	ds := manifest(t, "daemonset.yaml")
	latchd := ds.Spec.Template.Spec.Containers[0]
	o, err := parseFlags(expand(t, latchd.Args, env))
	if err != nil {
		t.Fatal(err)
	}
	if o.mode != "standard" || o.nodeName != "node" || o.takeOver || o.install.InPlace || o.install.ConfDir != "/etc/cni/net.d" {
		t.Errorf("have %+v", o)
	}
	t.Setenv("NETWORK_POLICY_ENFORCING_MODE", "STRICT")
	if o, err = parseFlags(expand(t, latchd.Args, env)); err != nil || o.mode != "strict" {
		t.Errorf("mode %q, %v", o.mode, err)
	}
	install := ds.Spec.Template.Spec.InitContainers[0]
	for _, args := range [][]string{install.Args, manifest(t, "uninstall/daemonset.yaml").Spec.Template.Spec.Containers[0].Args} {
		args = expand(t, args, env)
		if code := place(args[0], append(args[1:], "--help")); code != 0 {
			t.Errorf("latchd %v: exit code %d", args, code)
		}
	}
}

// The probes ask where latchd answers, and nothing is privileged.
func TestManifestOfThePod(t *testing.T) {
	pod := manifest(t, "daemonset.yaml").Spec.Template.Spec
	o, err := parseFlags([]string{"--node-name", "n"})
	if err != nil {
		t.Fatal(err)
	}
	c := pod.Containers[0]
	for _, p := range []*corev1.Probe{c.StartupProbe, c.LivenessProbe, c.ReadinessProbe} {
		if got := ":" + p.HTTPGet.Port.String(); got != o.observe.healthAddr {
			t.Errorf("probe of %s, latchd answers at %s", got, o.observe.healthAddr)
		}
	}
	for _, c := range append(pod.Containers, pod.InitContainers...) {
		s := c.SecurityContext
		if s.Privileged != nil || s.ReadOnlyRootFilesystem == nil || !*s.ReadOnlyRootFilesystem || len(s.Capabilities.Drop) != 1 {
			t.Errorf("container %s: %+v", c.Name, s)
		}
	}
}

// manifest reads a DaemonSet, and fails on a field that there is not.
func manifest(t *testing.T, name string) *appsv1.DaemonSet {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("..", "..", "conf", name))
	if err != nil {
		t.Fatal(err)
	}
	ds := &appsv1.DaemonSet{}
	if err := yaml.UnmarshalStrict(b, ds); err != nil {
		t.Fatal(err)
	}
	return ds
}

func settings(t *testing.T) map[string]string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("..", "..", "conf", "settings.env"))
	if err != nil {
		t.Fatal(err)
	}
	env := map[string]string{}
	for s := bufio.NewScanner(bytes.NewReader(b)); s.Scan(); {
		if key, value, ok := strings.Cut(s.Text(), "="); ok && !strings.HasPrefix(key, "#") {
			env[key] = value
		}
	}
	return env
}

// expand puts in variables as Kubernetes does.
func expand(t *testing.T, args []string, env map[string]string) []string {
	t.Helper()
	variable := regexp.MustCompile(`\$\(([A-Z_]+)\)`)
	var all []string
	for _, a := range args {
		all = append(all, variable.ReplaceAllStringFunc(a, func(v string) string {
			name := v[2 : len(v)-1]
			if _, ok := env[name]; !ok {
				t.Errorf("argument %s: no such setting", a)
			}
			return env[name]
		}))
	}
	return all
}
