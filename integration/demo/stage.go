package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"time"

	"github.com/cilium/ebpf"

	"github.com/latch-cni/latch/integration/harness"
	"github.com/latch-cni/latch/integration/probe"
)

type address = netip.Addr

var (
	nodeAddr = netip.MustParseAddr("10.244.0.1")
	podAddrs = netip.MustParsePrefix("10.244.0.11/24") // host-local gives them in turn, from .11
)

// cast are the pods of the shop, and what each listens on. The sample's endpoints objects have the
// addresses.
var cast = []role{
	{"web", "web", netip.MustParseAddr("10.244.0.11"), 80},
	{"api", "api", netip.MustParseAddr("10.244.0.12"), 8080},
	{"db", "db", netip.MustParseAddr("10.244.0.13"), 5432},
}

// newborn comes into the shop when policy is in force already.
var newborn = role{"db-2", "db", netip.MustParseAddr("10.244.0.14"), 5432}

type role struct {
	name, app string
	addr      netip.Addr
	port      uint16
}

func (r role) pod() harness.Pod {
	return harness.Pod{Namespace: "shop", Name: r.name, UID: "uid-" + r.name}
}

// demo is the stage and what stands on it.
type demo struct {
	out    *printer
	node   *harness.Node
	file   string
	sample []byte // content of file

	prober *probe.Prober
	self   *probe.Endpoint
	pods   map[string]*actor
	box    *harness.Sandbox // of newborn
	last   table            // the last one shown
	progs  []ebpf.ProgramID
}

// actor is a pod that sends and receives.
type actor struct {
	role
	*harness.Sandbox
	*probe.Endpoint
}

// set starts latchd and makes the three pods.
func (d *demo) set(ctx context.Context) error {
	d.prober, d.pods = probe.New(), map[string]*actor{}
	var err error
	if d.self, err = probe.Open("node", d.node.NS, nodeAddr); err != nil {
		return err
	}
	if err := d.announce(cast...); err != nil {
		return err
	}
	if err := d.node.StartLatchd(); err != nil {
		return err
	}
	for _, r := range cast {
		box, err := d.node.AddPod(ctx, r.pod())
		if err != nil {
			return err
		}
		if got := box.Result.IPs[0].Address.IP.String(); got != r.addr.String() {
			return fmt.Errorf("pod %s has address %s, the policies say %v", r.name, got, r.addr)
		}
		end, err := probe.Open(r.name, box.NS, r.addr)
		if err != nil {
			return err
		}
		d.pods[r.name] = &actor{r, box, end}
	}
	return nil
}

// announce tells latchd which pods are bound to the node, as the API server would.
func (d *demo) announce(roles ...role) error {
	var all bytes.Buffer
	for _, r := range roles {
		all.Write(d.node.PodManifest(r.pod(), map[string]string{"app": r.app}))
	}
	return d.node.WriteManifest("pods.yaml", all.Bytes())
}

// latchctl runs the CLI and shows its command line and its output.
func (d *demo) latchctl(ctx context.Context, exit int, args ...string) error {
	out, err := d.node.Latchctl(ctx, args...)
	if code := exitCode(err); code != exit {
		return fmt.Errorf("latchctl: exit code %d, want %d: %w", code, exit, errors.Join(err, errors.New(out)))
	}
	d.out.command("latchctl", args, out)
	return nil
}

// clear takes everything down, whatever happened; log shows what latchd said last.
func (d *demo) clear(well, log bool) error {
	var err error
	if well {
		err = d.cleanUp(context.Background())
	} else if log && d.node.Latchd != nil {
		err = fmt.Errorf("the end of latchd's log:\n%s", d.node.Latchd.LogTail(15))
	}
	for _, a := range d.pods {
		a.Endpoint.Close()
	}
	if d.self != nil {
		d.self.Close()
	}
	err = errors.Join(err, d.node.Stop(context.Background()))
	if err != nil || !well {
		return err
	}
	gone := harness.Eventually(context.Background(), 5*time.Second, d.unloaded)
	d.out.fact(gone == nil, "no program is left in the kernel")
	return nil
}

// cleanUp ends as a node is taken out of service, and looks what is left.
func (d *demo) cleanUp(ctx context.Context) error {
	d.out.chapter("Clean up")
	d.progs = d.loaded()
	boxes := []*harness.Sandbox{d.box}
	for _, a := range d.pods {
		boxes = append(boxes, a.Sandbox)
	}
	for _, box := range boxes {
		if err := d.node.DelPod(ctx, box); err != nil {
			return err
		}
	}
	if err := d.node.StopLatchd(); err != nil {
		return err
	}
	if err := d.latchctl(ctx, 0, "cleanup", "--yes"); err != nil {
		return err
	}
	fmt.Fprintln(d.out.to)
	d.out.fact(len(d.progs) > 0 && empty(d.node.StateDir), "no record and no lock is left")
	d.out.fact(empty(filepath.Join(d.node.Bpffs, "latch")), "no pin and no map is left")
	return nil
}

// empty tells whether a folder is not there.
func empty(dir string) bool {
	_, err := os.Stat(dir)
	return errors.Is(err, os.ErrNotExist)
}

// loaded are the programs that the node's interfaces run.
func (d *demo) loaded() []ebpf.ProgramID {
	raw, _ := d.node.Latchctl(context.Background(), "status", "-o", "json")
	var status struct {
		Pods []struct {
			Interfaces []struct {
				ToPod, FromPod struct{ Program uint32 }
			}
		}
	}
	if json.Unmarshal([]byte(raw), &status) != nil {
		return nil
	}
	var ids []ebpf.ProgramID
	for _, p := range status.Pods {
		for _, in := range p.Interfaces {
			ids = append(ids, ebpf.ProgramID(in.ToPod.Program), ebpf.ProgramID(in.FromPod.Program))
		}
	}
	return ids
}

// unloaded asks the kernel whether these programs are gone.
func (d *demo) unloaded() error {
	for _, id := range d.progs {
		p, err := ebpf.NewProgramFromID(id)
		if err == nil {
			_ = p.Close()
			return fmt.Errorf("program %d is still loaded", id)
		}
	}
	return nil
}
