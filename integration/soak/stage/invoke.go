package stage

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
)

type object = map[string]any

// Add runs ADD and tells how long it took. A refusal is a *types.Error.
func (p *Pod) Add() (time.Duration, error) { return p.run("ADD") }

// Del runs DEL.
func (p *Pod) Del() (time.Duration, error) { return p.run("DEL") }

// Check runs CHECK.
func (p *Pod) Check() error {
	_, err := p.run("CHECK")
	return err
}

// Remove is the end of a pod: DEL, again when it is told so, as a runtime does; the sandbox; the Pod object.
func (p *Pod) Remove() error {
	_, err := p.Del()
	for n := 0; n < 10 && Retryable(err); n++ {
		_, err = p.Del()
	}
	return errors.Join(err, p.Drop(), p.Withdraw())
}

func (p *Pod) run(verb string) (time.Duration, error) {
	cmd, out := p.Command(verb)
	began := time.Now()
	err := p.s.OnNode(cmd.Run)
	took := time.Since(began)
	exit := (*exec.ExitError)(nil)
	switch {
	case err == nil:
		return took, nil
	case !errors.As(err, &exit) || exit.ExitCode() < 0:
		return took, fmt.Errorf("%s pod %s: %w", verb, p.Name, err)
	}
	refusal := &types.Error{}
	if json.Unmarshal(out.Bytes(), refusal) != nil || refusal.Code == 0 || refusal.Msg == "" {
		return took, fmt.Errorf("%s pod %s failed (%w) without a CNI error on stdout: %q %s", verb, p.Name, err, out.String(), cmd.Stderr)
	}
	return took, fmt.Errorf("%s pod %s: %w", verb, p.Name, refusal)
}

// Command is the plugin about to be run as a runtime does it. Start it with OnNode.
func (p *Pod) Command(verb string) (*exec.Cmd, *bytes.Buffer) {
	conf := object{"cniVersion": "1.1.0", "name": "soak", "type": "latch", "stateDir": p.s.Node.StateDir, "bpffs": p.s.Node.Bpffs,
		"logFile": p.s.Node.LatchLog, "prevResult": p.prevResult()}
	maps.Copy(conf, p.s.opts.Entry)
	maps.Copy(conf, p.Entry)
	raw, err := json.Marshal(conf)
	if err != nil {
		panic(fmt.Sprintf("stage: configuration: %v", err))
	}
	cmd := exec.Command(p.s.opts.Binaries.Latch())
	cmd.Stdin = bytes.NewReader(raw)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	cmd.Env = append(os.Environ(), "CNI_COMMAND="+verb, "CNI_CONTAINERID="+p.Container, "CNI_NETNS="+p.Path, "CNI_IFNAME=eth0",
		"CNI_PATH="+p.s.opts.Binaries.Dir,
		"CNI_ARGS=IgnoreUnknown=1;K8S_POD_UID="+p.UID+";K8S_POD_NAMESPACE="+p.Namespace+";K8S_POD_NAME="+p.Name)
	return cmd, &out
}

func (p *Pod) prevResult() object {
	return object{"cniVersion": "1.1.0",
		"interfaces": []object{{"name": p.HostName}, {"name": "eth0", "sandbox": p.Path}},
		"ips":        []object{{"interface": 1, "address": p.Addr().String() + "/32", "gateway": gateway.String()}}}
}
