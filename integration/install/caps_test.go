package install

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	appsv1 "k8s.io/api/apps/v1"
	"sigs.k8s.io/yaml"

	"github.com/latch-cni/latch/integration/ready"
	"github.com/latch-cni/latch/shared/testenv"
)

// latchd does all of its work with the capabilities that its manifest asks for, and no more: load and
// pin, fill and change rules, see what others changed and repair it, follow the CNI configuration, and
// take over from another agent. So do install and uninstall with theirs.
func TestCapabilitiesOfTheManifest(t *testing.T) {
	if _, err := exec.LookPath("setpriv"); err != nil {
		testenv.Missing(t, "needs setpriv (util-linux)")
	}
	bin := ready.Build(t)
	confine(t, bin.Latchd(), capabilities(t, "daemonset.yaml", "latchd"))
	g := newGround(t, options{bin: bin, latchd: []string{"--take-over", "--audit-period", "500ms"}})
	g.writePrimary(g.primary())
	g.check(g.node.WriteManifest("policy.yaml", []byte(takeOverPolicy)))
	old := g.openPod("b")
	agent := newOldAgent(g, 9000)
	agent.attach(old.hostInterface())

	confine(t, bin.Latchd()+"-install", capabilities(t, "daemonset.yaml", "install"))
	if _, err := g.latchdAs("install", "install", "--plugin", bin.Latch()); err == nil || !strings.Contains(err.Error(), "--take-over") {
		t.Errorf("install sees no other agent: %v", err)
	}
	_, err := g.latchdAs("install", "install", "--plugin", bin.Latch(), "--take-over")
	g.check(err)
	g.start()
	g.check(g.addBy(g.latchAlone(old.result), sandboxIn(old.NetNS, "b")))
	testenv.Eventually(t, 5*time.Second, agent.unpinned)

	a := g.pod("a")
	allowed := func(port string) error { return g.arrives(a, port) }
	testenv.Eventually(t, 5*time.Second, func() error { return allowed(allowedPort) })
	if allowed(port) == nil {
		t.Error("a forbidden datagram arrived")
	}
	g.check(g.node.WriteManifest("policy.yaml", []byte(strings.Replace(takeOverPolicy, "9001", "9000", 1))))
	testenv.Eventually(t, 5*time.Second, func() error { return allowed(port) }) // the rules in force were changed
	testenv.Eventually(t, 5*time.Second, func() error {
		if allowed(allowedPort) == nil {
			return errors.New("what is not allowed any more still arrives")
		}
		return nil
	})
	g.check(g.Node.Do(func() error {
		link, err := netlink.LinkByName(a.hostInterface())
		if err != nil {
			return err
		}
		return netlink.QdiscDel(&netlink.GenericQdisc{QdiscType: "clsact", QdiscAttrs: netlink.QdiscAttrs{
			LinkIndex: link.Attrs().Index, Handle: netlink.MakeHandle(0xffff, 0), Parent: netlink.HANDLE_CLSACT}})
	}))
	testenv.Eventually(t, 5*time.Second, func() error { // it was attached again
		if allowed(allowedPort) == nil {
			return errors.New("a forbidden datagram arrives")
		}
		return g.node.WaitReady(t.Context(), time.Second)
	})
	g.check(g.node.StopLatchd())
	confine(t, bin.Latchd()+"-uninstall", capabilities(t, "uninstall/daemonset.yaml", "uninstall"))
	_, err = g.latchdAs("uninstall", "uninstall")
	g.check(err)
	g.wantNothingAttached()
}

// Without any one of the capabilities of its manifest a container fails, and says which it lacks. Only
// SYS_RESOURCE is for kernels before 5.11.
func TestEachCapabilityIsNeeded(t *testing.T) {
	bin := ready.Build(t)
	g := newGround(t, options{bin: bin})
	g.writePrimary(g.primary())
	newOldAgent(g, 9000).attach(g.openPod("b").hostInterface())
	folders := []string{"--cni-conf-dir", g.confDir, "--bpffs", g.node.Bpffs, "--state-dir", g.node.StateDir}
	for _, tt := range []struct {
		manifest, container string
		args                []string
	}{
		{"daemonset.yaml", "latchd", []string{"--policy-dir", g.node.PolicyDir, "--node-name", "n", "--node-ip", testenv.NodeAddr4, "--take-over"}},
		{"daemonset.yaml", "install", []string{"install", "--plugin", bin.Latch(), "--cni-bin-dir", g.binDir}},
		{"uninstall/daemonset.yaml", "uninstall", []string{"uninstall", "--cni-bin-dir", g.binDir}},
	} {
		all := capabilities(t, tt.manifest, tt.container)
		for i, without := range all {
			if without == "SYS_RESOURCE" {
				continue
			}
			path := bin.Latchd() + "-without"
			confine(t, path, slices.Delete(slices.Clone(all), i, i+1))
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			var out []byte
			err := g.Node.Do(func() (err error) {
				out, err = exec.CommandContext(ctx, path, append(tt.args, folders...)...).CombinedOutput()
				return err
			})
			cancel()
			want := "capability " + without + " is missing"
			looked := without == "BPF" && strings.Contains(string(out), "is in force on") // Linux 5.19 lets anybody open a pin
			if err == nil || !strings.Contains(string(out), want) && !looked {
				t.Errorf("%s without %s: %v, want %q\n%s", tt.container, without, err, want, out)
			}
		}
	}
}

// arrives sends datagrams that are told apart from all others.
func (g *ground) arrives(s *sandbox, port string) error {
	what := fmt.Sprintf("%s to %s at %v", s.name, port, time.Now().UnixNano())
	c, err := s.Dial("udp", testenv.ExtWeb4+":"+port, time.Second)
	if err != nil {
		return err
	}
	defer c.Close()
	for range 10 {
		if _, err := c.Write([]byte(what)); err != nil {
			return err
		}
		time.Sleep(5 * time.Millisecond)
		if g.arrivals(what) > 0 {
			return nil
		}
	}
	return fmt.Errorf("%s did not arrive", what)
}

// confine puts a script in place of a latchd that runs it with these capabilities alone, as a container
// runtime does for root.
func confine(t *testing.T, path string, caps []string) {
	t.Helper()
	dir := filepath.Dir(path)
	confined := filepath.Join(dir, "confined")
	if _, err := os.Lstat(confined); err != nil {
		if err := os.Rename(filepath.Join(dir, "latchd"), confined); err != nil {
			t.Fatal(err)
		}
	}
	bounds := "-all"
	for _, c := range caps {
		bounds += ",+" + strings.ToLower(c)
	}
	script := fmt.Sprintf("#!/bin/sh\nexec setpriv --bounding-set=%s --inh-caps=-all %s \"$@\"\n", bounds, confined)
	if err := os.WriteFile(path, []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
}

// capabilities are those that a container of a manifest adds to none.
func capabilities(t *testing.T, name, container string) []string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("..", "..", "conf", name))
	if err != nil {
		t.Fatal(err)
	}
	var ds appsv1.DaemonSet
	if err := yaml.UnmarshalStrict(b, &ds); err != nil {
		t.Fatal(err)
	}
	pod := ds.Spec.Template.Spec
	for _, c := range slices.Concat(pod.InitContainers, pod.Containers) {
		if c.Name != container {
			continue
		}
		var caps []string
		for _, add := range c.SecurityContext.Capabilities.Add {
			caps = append(caps, string(add))
		}
		return caps
	}
	t.Fatalf("%s has no container %s", name, container)
	return nil
}
