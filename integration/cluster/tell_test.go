package cluster

import (
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/latch-cni/latch/shared/attach"
)

// told bounds the time until an Event: latchd waits whether something lasts.
const told = time.Minute

// event is an Event of the API server.
type event struct {
	InvolvedObject struct{ APIVersion, Kind, Namespace, Name, UID string }
	Reason         string
	Message        string
	Type           string
	Source         struct{ Component, Host string }
}

// events are those about an object.
func (n *node) events(kind, name string) []event {
	n.t.Helper()
	var list struct{ Items []event }
	selector := url.QueryEscape(fmt.Sprintf("involvedObject.kind=%s,involvedObject.name=%s", kind, name))
	n.must(n.cp.get("/api/v1/namespaces/"+n.ns+"/events?fieldSelector="+selector, &list))
	return list.Items
}

// awaitEvent waits for the one Event of a reason about an object, and for what it says.
func (n *node) awaitEvent(kind, name, uid, reason string, says ...string) {
	n.t.Helper()
	n.eventually(told, func() error {
		var found []event
		all := n.events(kind, name)
		for _, e := range all {
			if e.Reason == reason {
				found = append(found, e)
			}
		}
		if len(found) != 1 {
			return fmt.Errorf("%d events %s about %s %s, want one: %+v", len(found), reason, kind, name, all)
		}
		e := found[0]
		for _, want := range says {
			if !strings.Contains(e.Message, want) {
				return fmt.Errorf("event %s does not say %q: %s", reason, want, e.Message)
			}
		}
		if e.InvolvedObject.UID != uid || e.Source.Component != "latchd" || e.Source.Host != n.Name() {
			return fmt.Errorf("event %+v, want of uid %s by latchd of %s", e, uid, n.Name())
		}
		return nil
	})
}

// tooBig are rules that multiply to more than a node takes.
func (p *policy) tooBig() *policy {
	var ports []object
	for i := range 1100 {
		p.peers = append(p.peers, object{"cidr": fmt.Sprintf("10.9.%d.%d/32", i>>8, i&255), "ports": []object{{"protocol": "UDP", "port": 1 + i}}})
		ports = append(ports, object{"protocol": "TCP", "port": 1 + 2*i})
	}
	p.peers = append(p.peers, object{"cidr": "10.9.0.0/16", "ports": ports})
	return p
}

// testEvents lets things go wrong, and reads in the API what latchd says about them, by the rights that
// conf gives it.
func testEvents(t *testing.T, cp *controlPlane) {
	n := newNode(t, cp, nodeOptions{args: []string{"--audit-period", "1s"}})
	a := n.pod("a", object{"app": "a"}).add()

	// An ADD that fails: of a pod that the API server knows to be elsewhere.
	lost := n.pod("lost", object{"app": "lost"})
	lost.forget()
	if err := lost.tryAdd(); err == nil {
		t.Fatal("a pod that nobody knows was started")
	}
	n.awaitEvent("Pod", "lost", lost.uid, "PolicySetupFailed", "nothing is known about it")

	// A repair.
	n.must(n.NS.Do(func() error {
		link, err := netlink.LinkByName(a.HostInterface())
		if err != nil {
			return err
		}
		return attach.Detach(link.Attrs().Index, attach.ToPod, "")
	}))
	n.awaitEvent("Pod", "a", a.uid, "PolicyRepaired", "to_pod was not in force")

	// A policy in parts.
	broken := n.newPolicy("broken", object{"app": "a"}).from(8080, a.addrs...)
	broken.peers = append(broken.peers, object{"cidr": "10.0.0.0/99", "ports": []object{{"protocol": "TCP", "port": 1}}})
	broken.apply()
	n.awaitEvent("NetworkPolicy", "broken", broken.uid, "PolicyIncomplete", "10.0.0.0/99")

	// A policy without endpoints objects.
	pending := n.newPolicy("pending", object{"app": "a"})
	pending.applyPolicy()
	n.awaitEvent("NetworkPolicy", "pending", pending.uid, "PolicyPending")

	// A policy that is too big, and mended.
	b := n.pod("b", object{"app": "b"}).add()
	big := n.newPolicy("big", object{"app": "b"}).tooBig().apply()
	n.awaitEvent("NetworkPolicy", "big", big.uid, "PolicyNotApplied", "too big")
	n.awaitEvent("Pod", "b", b.uid, "PolicyNotEnforced", "too big", n.ns+"/big")
	big.peers = []object{}
	big.from(8080, a.addrs...).applyEndpoint()
	n.awaitEvent("Pod", "b", b.uid, "PolicyEnforced")

	// A latchd that starts anew says the same of a policy, and makes no second Event of it; nor is a pod
	// that is well worth one.
	n.must(n.StopLatchd())
	n.start()
	time.Sleep(8 * time.Second)
	n.awaitEvent("NetworkPolicy", "broken", broken.uid, "PolicyIncomplete", "10.0.0.0/99")
	if all := n.events("Pod", "b"); len(all) != 2 {
		t.Errorf("events about a pod that is well: %+v", all)
	}
	if st := n.status(); strings.Contains(fmt.Sprint(st.Problems), "cannot be written") {
		t.Errorf("status %+v", st)
	}
}

// condition is what the API server has of a pod's.
type condition struct{ Type, Status, Reason, Message string }

func (p *pod) condition() condition {
	p.n.t.Helper()
	var out struct {
		Status struct{ Conditions []condition }
	}
	p.n.must(p.n.cp.get(p.path(), &out))
	for _, c := range out.Status.Conditions {
		if c.Type == "latch-cni.dev/PolicyEnforced" {
			return c
		}
	}
	return condition{}
}

func (p *pod) awaitCondition(status, reason string) {
	p.n.t.Helper()
	p.n.eventually(told, func() error {
		if c := p.condition(); c.Status != status || c.Reason != reason {
			return fmt.Errorf("condition %+v, want %s for %s", c, status, reason)
		}
		return nil
	})
}

// testCondition follows the condition of pods, under the rights of conf/pod-condition.
func testCondition(t *testing.T, cp *controlPlane) {
	n := newNode(t, cp, nodeOptions{args: []string{"--pod-condition", "--audit-period", "1s"}})
	a := n.pod("a", object{"app": "a"}).add()
	n.eventually(told, func() error { // conf alone does not allow it
		if problems := fmt.Sprint(n.status().Problems); !strings.Contains(problems, "cannot be written") {
			return fmt.Errorf("nobody says that the condition cannot be written: %s", problems)
		}
		return nil
	})
	if c := a.condition(); c.Status != "" {
		t.Fatalf("condition %+v without the right to write it", c)
	}
	cp.applyFile(t, "../../conf/pod-condition/rbac.yaml")
	a.awaitCondition("True", "Enforced")
	n.newPolicy("open", object{"app": "a"}).from(8080, nodeAddrs...).apply()

	// The kernel does not hold what cannot be put into it.
	b := n.pod("b", object{"app": "b"}).add()
	b.awaitCondition("True", "Enforced")
	big := n.newPolicy("big", object{"app": "b"}).tooBig().apply()
	b.awaitCondition("False", "Stale")
	a.awaitCondition("True", "Enforced")
	big.peers = []object{}
	big.from(8080, a.addrs...).applyEndpoint()
	b.awaitCondition("True", "Enforced")

	// Nor what nobody has said yet.
	c := n.pod("c", object{"app": "c"}).add()
	c.awaitCondition("True", "Enforced")
	pending := n.newPolicy("pending", object{"app": "c"})
	pending.applyPolicy()
	c.awaitCondition("False", "PolicyPending")
	pending.applyEndpoint()
	c.awaitCondition("True", "Enforced")

	// Without latchd it stays as it is, and the next one goes on with it.
	n.must(n.StopLatchd())
	if now := b.condition(); now.Status != "True" {
		t.Errorf("condition %+v without latchd", now)
	}
	pending.remove()
	pending.applyPolicy()
	n.start()
	c.awaitCondition("False", "PolicyPending")
	b.awaitCondition("True", "Enforced")

	// A successor of the name gets its own.
	b.forget()
	b.del()
	b.create(object{"app": "b"})
	time.Sleep(2 * time.Second)
	if now := b.condition(); now.Status != "" {
		t.Errorf("condition %+v of a pod that has not started", now)
	}
	b.add().awaitCondition("True", "Enforced")
}
