package reconcile

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"os"
	"reflect"
	"slices"
	"strconv"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/latch-cni/latch/cmd/latchd/apis"
	"github.com/latch-cni/latch/cmd/latchd/apis/v1alpha1"
	"github.com/latch-cni/latch/cmd/latchd/world"
	"github.com/latch-cni/latch/shared/identity"
	"github.com/latch-cni/latch/shared/policy"
)

// history is one World that sees thousands of changes, with what is remembered beside it, and the objects
// as they are: what a World that saw nothing else would go by.
type history struct {
	*maker
	t        *testing.T
	name     string
	now      time.Time
	opts     world.Options
	w        *world.World
	complete []string // kinds of policies that are all known
	fallback policy.Verdict

	objects map[apis.Ref]apis.Object
	had     map[policy.PolicyRef]apis.Object // policies' own objects that are gone

	synced   bool
	memory   compiled
	inputs   map[string]policy.Input      // by key: what the memory may be asked for
	queue    map[identity.Identifier]bool // to be reconciled
	attached map[identity.Identifier]bool
	written  map[identity.Identifier]written
	kernel   *historyKernel // nil: written is all there is
	compared int
}

// written is what the kernel holds for an identifier.
type written struct {
	namespace       string
	labels          map[string]string
	create, running *policy.Rules
	policies        []policy.PolicyRef
	pending         []policy.PolicyRef
}

func newHistory(t *testing.T, seed, round uint64) *history {
	h := &history{
		maker: &maker{Rand: rand.New(rand.NewPCG(seed, round))}, t: t, name: fmt.Sprintf("HISTORY_SEED=%d round %d", seed, round),
		now: time.Unix(1e9, 0), fallback: policy.Allow,
		objects: map[apis.Ref]apis.Object{}, had: map[policy.PolicyRef]apis.Object{},
		inputs: map[string]policy.Input{},
		queue:  map[identity.Identifier]bool{}, attached: map[identity.Identifier]bool{}, written: map[identity.Identifier]written{},
	}
	h.opts = world.Options{NodeName: "n1", NodeIPs: []netip.Addr{netip.MustParseAddr(nodeIP)}, Now: func() time.Time { return h.now }, PodsComplete: h.IntN(2) == 0}
	if h.IntN(4) == 0 {
		h.opts.Mode, h.fallback = world.Strict, policy.Deny
	}
	if h.IntN(2) == 0 {
		h.complete = []string{apis.KindNetworkPolicy, apis.KindApplicationNetworkPolicy, apis.KindClusterNetworkPolicy}
	}
	h.w = world.New(h.opts)
	return h
}

func (h *history) object(ref policy.PolicyRef) apis.Object {
	return h.objects[apis.Ref{Kind: ref.Kind, Namespace: ref.Namespace, Name: ref.Name}]
}

// policies are the endpoints objects of each policy that has any, in the order of their names.
func (h *history) policies() map[policy.PolicyRef][]apis.Object {
	out := map[policy.PolicyRef][]apis.Object{}
	for _, o := range h.objects {
		if ref, ok := h.parent(o); ok {
			out[ref] = append(out[ref], o)
		}
	}
	for _, chunks := range out {
		slices.SortFunc(chunks, func(a, b apis.Object) int { return refOf(a).Compare(refOf(b)) })
	}
	return out
}

// parent names the policy that an endpoints object belongs to.
func (h *history) parent(o apis.Object) (policy.PolicyRef, bool) {
	switch o := o.(type) {
	case *v1alpha1.ClusterPolicyEndpoint:
		return policy.PolicyRef{Kind: apis.KindClusterNetworkPolicy, Name: o.Spec.PolicyRef.Name}, true
	case *v1alpha1.PolicyEndpoint:
		np := policy.PolicyRef{Kind: apis.KindNetworkPolicy, Namespace: o.Namespace, Name: o.Spec.PolicyRef.Name}
		anp := np
		anp.Kind = apis.KindApplicationNetworkPolicy
		if len(o.OwnerReferences) > 0 && o.OwnerReferences[0].Kind == anp.Kind ||
			len(o.OwnerReferences) == 0 && h.object(anp) != nil && h.object(np) == nil {
			return anp, true
		}
		return np, true
	}
	return policy.PolicyRef{}, false
}

func refOf(o apis.Object) apis.Ref {
	ref, _ := apis.RefOf(o)
	return ref
}

func (h *history) enqueue(ids []identity.Identifier) {
	for _, id := range ids {
		h.queue[id] = true
	}
}

// work reconciles up to n identifiers, in random order.
func (h *history) work(n int) {
	for ; n > 0 && len(h.queue) > 0; n-- {
		ids := slices.Sorted(maps.Keys(h.queue))
		id := ids[h.IntN(len(ids))]
		delete(h.queue, id)
		if h.kernel != nil {
			h.kernel.reconcile(id)
			continue
		}
		h.reconcile(id)
	}
}

// reconcile does what Reconciler.reconcile does for an identifier, without a kernel.
func (h *history) reconcile(id identity.Identifier) {
	h.w.SetRunning(id, h.attached[id])
	d, wanted := h.w.Desired(id)
	if !wanted {
		delete(h.written, id)
		return
	}
	now := written{namespace: d.Namespace, labels: d.Labels, policies: d.Policies, pending: d.Pending, create: h.rules(d.CreateKey, d.Create)}
	switch {
	case d.HoldRunning && h.attached[id]:
		now.running = h.written[id].running
	case d.SameRunning:
		now.running = now.create
	default:
		now.running = h.rules(d.RunningKey, d.Running)
	}
	h.written[id] = now
	h.w.Applied(id, d)
}

// rules are what the memory gives for an input, which must be what compiling it gives.
func (h *history) rules(key string, in policy.Input) *policy.Rules {
	if h.IntN(5000) == 0 {
		h.memory.weight = maxCompiled // the next one starts another generation
	}
	got, err := h.memory.get(key, in)
	if err != nil {
		h.t.Fatal(err)
	}
	h.same("remembered by the key "+strconv.Quote(key), policy.Compile(in), got)
	return got
}

func (h *history) same(what string, want, got *policy.Rules) {
	h.t.Helper()
	h.compared++
	if got == nil || want.Hash() != got.Hash() || !slices.Equal(want.Sources, got.Sources) {
		h.t.Fatalf("%s: %s: rules are not those of the objects: want %+v, got %+v", h.name, what, want, got)
	}
}

// look asks for every identifier: no key may ever stand for two inputs.
func (h *history) look() {
	h.t.Helper()
	for _, id := range h.w.Identifiers() {
		d, _ := h.w.Desired(id)
		for key, in := range map[string]policy.Input{d.CreateKey: d.Create, d.RunningKey: d.Running} {
			if was, ok := h.inputs[key]; ok && !reflect.DeepEqual(was, in) {
				h.t.Fatalf("%s: key %q stood for %+v, and stands for %+v", h.name, key, was, in)
			}
			h.inputs[key] = in
		}
		if d.CreateKey == d.RunningKey && !reflect.DeepEqual(d.Create, d.Running) {
			h.t.Fatalf("%s: key %q stands for %+v and for %+v", h.name, d.CreateKey, d.Create, d.Running)
		}
	}
}

// pass lets time go by.
func (h *history) pass(d time.Duration) {
	h.now = h.now.Add(d)
	ids, _ := h.w.Due()
	h.enqueue(ids)
	h.enqueue(h.gone(h.w))
}

// gone does what a source does with an API server that has no object that was not delivered.
func (h *history) gone(w *world.World) (ids []identity.Identifier) {
	for _, kind := range h.complete {
		for _, ref := range w.Orphans(kind) {
			ids = append(ids, w.Gone(ref, h.now)...)
		}
	}
	return ids
}

// settle waits for everything that is due, and compares.
func (h *history) settle() {
	h.t.Helper()
	if !h.synced {
		h.synced = true
		h.enqueue(h.w.Synced(h.complete...))
	}
	for range 3 {
		h.pass(10 * time.Second)
		h.work(1 << 20)
	}
	fresh := world.New(h.opts)
	for _, o := range h.had { // that they were there is remembered on purpose (D16)
		fresh.Upsert(o)
		fresh.Delete(o)
	}
	fresh.Replace(h.all())
	fresh.Synced(h.complete...)
	h.now = h.now.Add(10 * time.Second)
	fresh.Due()
	h.gone(fresh)
	subjects, policies := h.subjects(), h.policies()
	if got, want := fresh.Identifiers(), slices.Sorted(maps.Keys(subjects)); !slices.Equal(got, want) {
		h.t.Fatalf("%s: identifiers are %v, of the pods %v", h.name, got, want)
	}
	for id, s := range subjects {
		d, _ := fresh.Desired(id)
		if len(d.Pending) > 0 {
			continue // the last rules of a policy that lost its endpoints objects are kept
		}
		who := fmt.Sprintf("%s %v %v", id, s.namespace, s.labels)
		want, got := policy.Compile(d.Create), h.written[id]
		if h.kernel != nil {
			got = h.kernel.written(id)
		}
		h.same("pods being created of "+who, want, got.create)
		h.same("running pods of "+who, want, got.running)
		for range 60 {
			p := h.packet()
			verdict := got.create.Lookup(p.direction, p.remote, protocols[p.protocol], uint16(p.port)).Verdict
			if by := h.verdict(policies, s, p); verdict != by {
				h.t.Fatalf("%s: %+v of %s: rules say %v, the objects %v", h.name, p, who, verdict, by)
			}
		}
	}
}

var protocols = map[corev1.Protocol]policy.Protocol{corev1.ProtocolTCP: policy.TCP, corev1.ProtocolUDP: policy.UDP, corev1.ProtocolSCTP: policy.SCTP}

func (h *history) packet() packet {
	p := packet{direction: policy.Directions[h.IntN(2)], protocol: corev1.Protocol(h.pick("TCP", "TCP", "UDP", "SCTP")), port: int32(h.IntN(7))}
	p.remote = netip.AddrFrom4([4]byte{10, 9, byte(h.IntN(3)), byte(h.IntN(9))})
	if h.IntN(4) == 0 {
		p.remote = netip.MustParseAddr(fmt.Sprintf("fd00:9::%d", h.IntN(4)))
	}
	return p
}

// subjects groups the pods under policy on the node by what policies can tell apart.
func (h *history) subjects() map[identity.Identifier]subject {
	out := map[identity.Identifier]subject{}
	add := func(id identity.Identifier, s subject, name string) {
		if _, ok := out[id]; !ok {
			s.pods = map[string]bool{}
			out[id] = s
		}
		out[id].pods[name] = true
	}
	for _, o := range h.objects {
		if p, ok := o.(*corev1.Pod); ok && p.Spec.NodeName == "n1" && !p.Spec.HostNetwork && p.Status.Phase == "" {
			add(identity.Of(p.Namespace, p.Labels), subject{namespace: p.Namespace, labels: p.Labels}, p.Name)
		}
		for _, l := range listOf(o) {
			if h.objects[apis.Ref{Kind: apis.KindPod, Namespace: l.Namespace, Name: l.Name}] == nil && !h.opts.PodsComplete {
				add(identity.OfName(l.Namespace, l.Name), subject{namespace: l.Namespace}, l.Name)
			}
		}
	}
	return out
}

func historySeed(t *testing.T) uint64 {
	t.Helper()
	text := os.Getenv("HISTORY_SEED")
	if text == "" {
		return 1
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		t.Fatalf("parse HISTORY_SEED: %v", err)
	}
	return n
}

// A World that has seen thousands of changes, and what is remembered of the rules that were compiled
// meanwhile, give every identifier what the objects say that are there now: the same as a World that saw
// only these, and as an evaluator of its own. HISTORY_SEED plays others.
func TestLongHistory(t *testing.T) {
	rounds, edits := 6, 3000
	if testing.Short() {
		rounds = 1
	}
	compared := 0
	for round := range rounds {
		h := newHistory(t, historySeed(t), uint64(round))
		for n := range edits {
			h.edit()
			h.look()
			h.work(h.IntN(4))
			if n%50 == 49 {
				h.settle()
			}
		}
		compared += h.compared
	}
	t.Logf("%d rounds of %d changes, %d times rules were compared", rounds, edits, compared)
}
