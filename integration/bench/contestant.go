package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	current "github.com/containernetworking/cni/pkg/types/100"
)

// doesNothing is the plugin asked for its version: what a process of it costs before it has done anything.
const doesNothing = "latch that does nothing"

// emptyMain is the file of the empty program.
const emptyMain = "empty"

// contestant is a program that is run as the runtime runs a plugin.
type contestant struct {
	name string
	path string
	conf map[string]any // nil: not a plugin, or one with nothing to do, and no DEL
	verb string         // in place of ADD

	wall, cpu, del []time.Duration
}

// contestants are latch, the plugins that it is compared with, and the floor of all Go programs.
func (g *ground) contestants() []*contestant {
	plugin := func(name, plugin string, keys map[string]any) *contestant {
		conf := map[string]any{"cniVersion": "1.0.0", "name": "bench", "type": plugin}
		maps.Copy(conf, keys)
		return &contestant{name: name, path: filepath.Join(g.bin.Dir, plugin), conf: conf}
	}
	all := []*contestant{
		plugin("latch", "latch", map[string]any{
			"stateDir": g.node.StateDir, "bpffs": g.node.Bpffs, "logFile": g.node.LatchLog,
		}),
		{name: doesNothing, path: filepath.Join(g.bin.Dir, "latch"), verb: "VERSION"},
		{name: "empty Go main", path: filepath.Join(g.bin.Dir, emptyMain)},
		plugin("bandwidth", "bandwidth", map[string]any{
			"ingressRate": 100e6, "ingressBurst": 10e6, "egressRate": 100e6, "egressBurst": 10e6,
		}),
		plugin("portmap, no mapping", "portmap", nil),
	}
	if _, err := exec.LookPath("nft"); err != nil {
		fmt.Println("portmap with a port is left out: nft is not installed")
		return all
	}
	return append(all, plugin("portmap, 1 port (nftables)", "portmap", map[string]any{
		"backend":       "nftables",
		"runtimeConfig": map[string]any{"portMappings": []any{map[string]any{"hostPort": 8080, "containerPort": 80, "protocol": "tcp"}}},
	}))
}

// buildEmpty builds a program that does nothing, as small as it gets.
func buildEmpty(ctx context.Context, dir string) error {
	src, bin := filepath.Join(dir, emptyMain+".go"), filepath.Join(dir, emptyMain)
	if err := os.WriteFile(src, []byte("package main\n\nfunc main() {}\n"), 0o600); err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags", "-s -w", "-o", bin, src)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build empty program: %w: %s", err, out)
	}
	return os.Remove(src)
}

// run measures one ADD, and its DEL apart.
func (c *contestant) run(g *ground, prev *current.Result) error {
	wall, cpu, err := c.exec(g, cmp.Or(c.verb, "ADD"), prev)
	if err != nil {
		return err
	}
	c.wall, c.cpu = append(c.wall, wall), append(c.cpu, cpu)
	if c.conf == nil {
		return nil
	}
	wall, _, err = c.exec(g, "DEL", prev)
	c.del = append(c.del, wall)
	return err
}

func (c *contestant) exec(g *ground, verb string, prev *current.Result) (wall, cpu time.Duration, err error) {
	conf := maps.Clone(c.conf)
	if conf != nil {
		conf["prevResult"] = prev
	}
	stdin, err := json.Marshal(conf)
	if err != nil {
		return 0, 0, err
	}
	var out bytes.Buffer
	cmd := exec.Command(c.path)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(stdin), &out, &out
	cmd.Env = append(os.Environ(), "CNI_COMMAND="+verb, "CNI_CONTAINERID="+container, "CNI_NETNS="+g.sandbox.Path,
		"CNI_IFNAME="+sandboxIf, "CNI_PATH="+g.bin.Dir,
		"CNI_ARGS=IgnoreUnknown=1;K8S_POD_NAMESPACE="+pod.Namespace+";K8S_POD_NAME="+pod.Name+";K8S_POD_UID="+pod.UID)
	err = g.node.NS.Do(func() error {
		begin := time.Now()
		err := cmd.Run()
		wall = time.Since(begin)
		return err
	})
	if err != nil {
		return 0, 0, fmt.Errorf("%s: %w: %s", verb, err, out.String())
	}
	return wall, cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime(), nil
}
