package health

import (
	"context"
	"errors"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/latch-cni/latch/bpf"
	"github.com/latch-cni/latch/cmd/latchd/reconcile"
	"github.com/latch-cni/latch/shared/attach"
	"github.com/latch-cni/latch/shared/enforce"
	"github.com/latch-cni/latch/shared/identity"
	"github.com/latch-cni/latch/shared/policy"
	"github.com/latch-cni/latch/shared/state"
	"github.com/latch-cni/latch/shared/testenv"
	"github.com/latch-cni/latch/shared/view"
)

func TestMain(m *testing.M) { testenv.Main(m) }

var ctx = context.Background()

// ground is a node with pod A in force.
type ground struct {
	*testenv.GroundT0
	t       *testing.T
	a       *testenv.Pod
	e       *enforce.Enforcer
	id      identity.Identifier
	inspect *Inspector
	failing map[identity.Identifier]error

	notAdopted []state.NotAdopted
}

func newGround(t *testing.T) *ground {
	t.Helper()
	testenv.RequireRoot(t)
	g := &ground{GroundT0: testenv.Ground(t), t: t, failing: map[identity.Identifier]error{}}
	g.a = g.Pod(t, testenv.PodA)
	g.id = identity.Of(g.a.Spec.Namespace, g.a.Spec.Labels)
	cfg := enforce.Config{Bpffs: testenv.BPFFS(t), StateDir: testenv.StateDir(t), AttachMode: attach.ModeClsact,
		LockTimeout: 5 * time.Second, Sizes: bpf.Sizes{Flows4: 1024, Flows6: 1024, Frags: 64}}
	var err error
	if g.e, err = enforce.Open(ctx, cfg); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = g.e.Close() })
	g.inspect = &Inspector{Bpffs: cfg.Bpffs, StateDir: cfg.StateDir,
		Failing: func() map[identity.Identifier]error { return g.failing }, Adopted: func() bool { return true },
		NotAdopted: func() []state.NotAdopted { return g.notAdopted }}
	g.apply(enforce.Request{Identifier: g.id, Namespace: g.a.Spec.Namespace, Labels: g.a.Spec.Labels,
		Create: policy.Compile(policy.Input{Default: [2]policy.Verdict{policy.Allow, policy.Allow}})})
	return g
}

func (g *ground) apply(req enforce.Request) {
	g.t.Helper()
	req.Bind = []state.Attachment{{ContainerID: "c1", IfName: "eth0", PodNamespace: g.a.Spec.Namespace, PodName: g.a.Spec.Name,
		Interfaces: []state.Interface{{Ifindex: g.a.HostIfindex, Name: g.a.HostName, Addr4: g.a.Addr4, Addr6: netip.Addr{}}}}}
	g.Node.MustDo(g.t, func() error {
		held, err := g.e.Lock(ctx, req.Identifier, g.id)
		if err != nil {
			return err
		}
		_, err = g.e.Apply(ctx, held, req)
		return errors.Join(err, held.Release())
	})
}

// want inspects, and compares the state of pod A and whether the node is ready.
func (g *ground) want(s State, ready bool) {
	g.t.Helper()
	var f Finding
	g.Node.MustDo(g.t, func() error {
		f = g.inspect.Inspect()
		return f.Err
	})
	if len(f.Pods) != 1 || f.Pods[0].State != s || f.Counts()[s] != 1 || (f.reason() == "") != ready {
		g.t.Errorf("found %+v (%q), want %s", f.Pods, f.reason(), s)
	}
}

func (g *ground) record(change func(*state.Attachment)) {
	g.t.Helper()
	a, err := g.e.Store().ReadAttachment("c1", "eth0")
	if err == nil {
		change(&a)
		err = g.e.Store().WriteAttachment(a)
	}
	if err != nil {
		g.t.Fatal(err)
	}
}

func TestStates(t *testing.T) {
	g := newGround(t)
	g.want(Enforced, true)

	g.failing[g.id] = errors.New("too big")
	g.want(Stale, true) // that the identifier fails is another reason not to be ready
	delete(g.failing, g.id)

	g.record(func(a *state.Attachment) { a.Phase = state.PhaseIntent })
	g.want(Starting, true)
	g.record(func(a *state.Attachment) { a.Phase = state.PhaseEnforced })

	g.Node.MustDo(t, func() error { return attach.Detach(g.a.HostIfindex, attach.ToPod, "") })
	g.want(NotInForce, false)

	name := identity.OfName(g.a.Spec.Namespace, g.a.Spec.Name)
	g.apply(enforce.Request{Identifier: name, Default: state.DefaultDeny})
	g.want(DefaultDeny, true)
	g.apply(enforce.Request{Identifier: name, Default: state.DefaultAllow})
	g.want(DefaultAllow, true)

	g.Node.DelLink(t, g.a.HostName)
	g.want(Gone, true)
	g.Node.MustDo(t, func() error { return g.e.Remove(ctx, "c1", "eth0") })
	f := Finding{}
	g.Node.MustDo(t, func() error {
		f = g.inspect.Inspect()
		return f.Err
	})
	if len(f.Pods) != 0 || f.reason() != "" {
		t.Errorf("found %+v", f)
	}

	// A rollout must not wait for a pod that nobody can take over: an alert tells.
	g.notAdopted = []state.NotAdopted{{Namespace: g.a.Spec.Namespace, Name: g.a.Spec.Name, Reason: "no route"}}
	g.want(NotAdopted, true)
}

func ask(m *Monitor, path string) (int, string) {
	w := httptest.NewRecorder()
	m.Handler().ServeHTTP(w, httptest.NewRequest("GET", path, nil))
	return w.Code, w.Body.String()
}

func TestAlive(t *testing.T) {
	for _, c := range []struct {
		name     string
		progress reconcile.Progress
		beat     time.Duration // ago
		code     int
		says     string
	}{
		{"starting", reconcile.Progress{}, 0, 200, "workers: ok"},
		{"at work", reconcile.Progress{Adopted: true, Longest: time.Minute, Audited: time.Now()}, time.Second, 200, "audit: ok"},
		{"first round of the audit to come", reconcile.Progress{Adopted: true}, time.Second, 200, "audit: ok"},
		{"status loop stands still", reconcile.Progress{}, time.Minute, 503, "status: the status has not been written for 1m0s"},
		{"worker stands still", reconcile.Progress{Longest: time.Hour}, time.Second, 503, "workers: a run has not ended for 1h0m0s"},
		{"audit stands still", reconcile.Progress{Adopted: true, Audited: time.Now().Add(-10 * time.Minute)}, time.Second, 503, "audit: no round"},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := &Monitor{Progress: func() reconcile.Progress { return c.progress }, AuditPeriod: 10 * time.Second}
			m.beat.Store(time.Now().Add(-c.beat).UnixNano())
			if code, body := ask(m, "/healthz"); code != c.code || !strings.Contains(body, c.says) {
				t.Errorf("%d %s", code, body)
			}
		})
	}
}

func TestReady(t *testing.T) {
	now := time.Now()
	broken := Pod{Namespace: "t1", Name: "a", State: NotInForce, Why: "eni1: to_pod: no program of ours runs"}
	for _, c := range []struct {
		name    string
		adopted bool
		found   Finding
		reason  string
	}{
		{"not adopted", false, Finding{At: now}, "verifying what is on the node"},
		{"not looked at", true, Finding{}, "attachments have not been looked at yet"},
		{"unreadable", true, Finding{At: now, Err: errors.New("no bpffs")}, "no bpffs"},
		{"empty node", true, Finding{At: now}, ""},
		{"one is not in force", true, Finding{At: now, Pods: []Pod{{State: Enforced}, broken}}, "1 of 2 attachments are not in force: t1/a: eni1"},
		{"starting, gone and open ones", true, Finding{At: now, Pods: []Pod{{State: Starting}, {State: Gone}, {State: DefaultAllow}}}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := &Monitor{Inspector: &Inspector{found: c.found}, Progress: func() reconcile.Progress { return reconcile.Progress{Adopted: c.adopted} }}
			m.Status = func() state.Status { return state.Status{Ready: m.Reason() == "", Message: m.Reason()} }
			if got := m.Reason(); !strings.Contains(got, c.reason) || (got == "") != (c.reason == "") {
				t.Errorf("reason %q", got)
			}
			code, body := ask(m, "/readyz")
			if (code == 200) != (c.reason == "") || !strings.Contains(body, c.reason) {
				t.Errorf("%d %s", code, body)
			}
		})
	}
}

// The first inspection comes as soon as everything is adopted, and one that finds something wrong is
// soon followed by another.
func TestInspectorLooksAgain(t *testing.T) {
	g := newGround(t)
	adopted := make(chan bool)
	g.inspect.Adopted = func() bool { return <-adopted }
	ctx, stop := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = g.Node.Do(func() error { g.inspect.Run(ctx, 200*time.Millisecond); return nil })
	}()
	adopted <- false
	if !g.inspect.Found().At.IsZero() {
		t.Error("looked before everything was adopted")
	}
	adopted <- true
	adopted <- true // the one before has ended
	if f := g.inspect.Found(); len(f.Pods) != 1 || f.Pods[0].State != Enforced {
		t.Errorf("found %+v", f)
	}
	stop()
	close(adopted)
	<-done
}

// An interface that is closed is told when it has been for long; one that ends meanwhile, or opens and closes, is not.
func TestClosedInterfacesLast(t *testing.T) {
	i := Inspector{}
	a, b := view.Problem{Object: "a"}, view.Problem{Object: "b"}
	start := time.Now()
	for _, step := range []struct {
		at           time.Duration
		closed, want []view.Problem
	}{
		{0, []view.Problem{a, b}, nil},
		{closedFor - time.Second, []view.Problem{a}, nil},
		{closedFor, []view.Problem{a, b}, []view.Problem{a}},
		{2*closedFor - time.Second, []view.Problem{b}, nil},
		{2 * closedFor, []view.Problem{a, b}, []view.Problem{b}},
	} {
		if got := i.lasting(step.closed, start.Add(step.at)); !slices.Equal(got, step.want) {
			t.Errorf("after %v: %v, want %v", step.at, got, step.want)
		}
	}
}
