package adopt

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/latch-cni/latch/integration/harness"
	"github.com/latch-cni/latch/integration/ready"
	"github.com/latch-cni/latch/shared/state"
	"github.com/latch-cni/latch/shared/testenv"
)

// grace is latchd's --grace: denied flows are cut after it.
const grace = time.Second

type object = map[string]any

// ground is a node with pods that latch never saw.
type ground struct {
	*testenv.GroundT0
	t    *testing.T
	node *harness.Node
	bin  *harness.Binaries
}

func newGround(t *testing.T, latchd ...string) *ground {
	t.Helper()
	testenv.RequireRoot(t)
	g := &ground{GroundT0: testenv.Ground(t), t: t, bin: ready.Build(t)}
	var err error
	g.node, err = harness.NewNode(harness.Config{
		NetNS: g.Node.Path(), Binaries: g.bin, LatchdArgs: append([]string{"--grace", grace.String()}, latchd...),
		Addrs: []netip.Addr{netip.MustParseAddr(testenv.NodeAddr4), netip.MustParseAddr(testenv.NodeAddr6)},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			out, err := g.node.Latchctl(context.Background(), "status")
			t.Logf("latchctl status: %v\n%s", err, out)
			if g.node.Latchd != nil {
				t.Logf("latchd:\n%s", g.node.Latchd.LogTail(30))
			}
		}
		if err := g.node.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return g
}

// nft loads rules on the node. What they have the kernel track is known for long: an emulated machine takes
// longer to start latchd than the 30 s that a datagram without an answer is.
func (g *ground) nft(rules string) {
	g.t.Helper()
	path, err := exec.LookPath("nft")
	if err != nil {
		testenv.Missing(g.t, "nft is not installed")
	}
	cmd := exec.Command(path, "-f", "-")
	cmd.Stdin = strings.NewReader(rules)
	g.Node.MustDo(g.t, cmd.Run)
	g.Node.Sysctl(g.t, "net.netfilter.nf_conntrack_udp_timeout", "600")
}

func (g *ground) start() {
	g.t.Helper()
	if err := g.node.StartLatchd(); err != nil {
		g.t.Fatal(err)
	}
	if err := g.node.WaitReady(context.Background(), 5*time.Minute); err != nil {
		g.t.Fatal(err)
	}
}

func (g *ground) write(name string, objects ...object) {
	g.t.Helper()
	var all []byte
	for _, o := range objects {
		all = append(append(append(all, "---\n"...), mustJSON(o)...), '\n')
	}
	if err := g.node.WriteManifest(name+".yaml", all); err != nil {
		g.t.Fatal(err)
	}
}

func mustJSON(v any) []byte {
	raw, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return raw
}

func uid(s testenv.PodSpec) string { return "uid-" + s.Name }

// publish writes a running pod's object, as the API server tells it.
func (g *ground) publish(s testenv.PodSpec) {
	g.t.Helper()
	var ips []object
	for _, a := range []string{s.Addr4, s.Addr6} {
		if a != "" {
			ips = append(ips, object{"ip": a})
		}
	}
	g.write("pod-"+s.Name, object{"apiVersion": "v1", "kind": "Pod",
		"metadata": object{"namespace": s.Namespace, "name": s.Name, "uid": uid(s), "labels": s.Labels},
		"spec":     object{"nodeName": g.node.Name()}, "status": object{"phase": "Running", "podIP": s.Addr4, "podIPs": ips}})
}

// pod makes a pod without latch and publishes it.
func (g *ground) pod(s testenv.PodSpec) *testenv.Pod {
	g.t.Helper()
	p := g.Pod(g.t, s)
	g.publish(s)
	return p
}

// add runs ADD of latch for a pod.
func (g *ground) add(p *testenv.Pod, container string) error {
	cmd := exec.Command(g.bin.Latch())
	cmd.Stdin = bytes.NewReader(mustJSON(object{"cniVersion": "1.1.0", "name": "pods", "type": "latch",
		"stateDir": g.node.StateDir, "bpffs": g.node.Bpffs, "logFile": g.node.LatchLog, "prevResult": p.PrevResult()}))
	cmd.Env = append(os.Environ(), "CNI_COMMAND=ADD", "CNI_CONTAINERID="+container, "CNI_NETNS="+p.Path(), "CNI_IFNAME="+p.IfName,
		"CNI_PATH="+g.bin.Dir, "CNI_ARGS=IgnoreUnknown=1;K8S_POD_UID="+uid(p.Spec)+";K8S_POD_NAMESPACE="+p.Spec.Namespace+";K8S_POD_NAME="+p.Spec.Name)
	var out []byte
	err := g.Node.Do(func() (err error) { out, err = cmd.CombinedOutput(); return err })
	if err != nil {
		return fmt.Errorf("ADD %s: %w: %s", p.Spec.Name, err, out)
	}
	return nil
}

func (g *ground) records(s testenv.PodSpec) (found []state.Attachment) {
	g.t.Helper()
	all, err := state.New(g.node.StateDir).ListAttachments()
	if err != nil {
		g.t.Fatal(err)
	}
	for _, a := range all {
		if a.PodName == s.Name && a.PodNamespace == s.Namespace {
			found = append(found, a)
		}
	}
	return found
}

// enforced asks latchctl, which asks the kernel.
func (g *ground) enforced(s testenv.PodSpec) error {
	out, err := g.node.Latchctl(context.Background(), "status", s.Namespace+"/"+s.Name, "-o", "json")
	if err != nil {
		return err
	}
	var got struct {
		Pods []struct {
			State   string `json:"state"`
			Healthy bool   `json:"healthy"`
		} `json:"pods"`
	}
	if err := json.Unmarshal([]byte(out), &got); err != nil {
		return err
	}
	if len(got.Pods) != 1 || got.Pods[0].State != "enforced" || !got.Pods[0].Healthy {
		return fmt.Errorf("pod %s is not enforced: %s", s.Name, out)
	}
	return nil
}

// endpoints is a policy for pods with a label.
func endpoints(name, app string, isolates []string, ingress, egress []object) object {
	return object{"apiVersion": "networking.k8s.aws/v1alpha1", "kind": "PolicyEndpoint",
		"metadata": object{"namespace": "t1", "name": name},
		"spec": object{"policyRef": object{"namespace": "t1", "name": name}, "podSelector": object{"matchLabels": object{"app": app}},
			"podIsolation": isolates, "ingress": ingress, "egress": egress}}
}

func rule(cidr, protocol string, port int) object {
	return object{"cidr": cidr, "ports": []object{{"protocol": protocol, "port": port}}}
}
