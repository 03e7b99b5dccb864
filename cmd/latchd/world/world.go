package world

import (
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/latch-cni/latch/cmd/latchd/apis"
	"github.com/latch-cni/latch/shared/identity"
	"github.com/latch-cni/latch/shared/policy"
)

// Mode is what happens to pods that no policy selects.
type Mode string

// Modes.
const (
	Standard Mode = "standard" // everything is allowed
	Strict   Mode = "strict"   // everything is denied
)

// Options of a World. The zero value of a field means its default.
type Options struct {
	NodeName string       // pods of other nodes are not local; empty: all pods are local
	NodeIPs  []netip.Addr // pods that are only listed are local if their host is one; empty: all are
	Mode     Mode         // default Standard

	// PodsComplete says that every pod of the node has its own object, as with an API server. A pod that
	// is only listed in endpoints objects is then no pod, and one without a node is not local.
	PodsComplete bool

	Now            func() time.Time // default time.Now
	Quiet          time.Duration    // without events of a policy, default 500 ms
	QuietMax       time.Duration    // waited for that at most, default 5 s
	UnorderedGrace time.Duration    // between watches that are not ordered, default 5 s
}

func (o Options) withDefaults() Options {
	if o.Mode == "" {
		o.Mode = Standard
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Quiet <= 0 {
		o.Quiet = 500 * time.Millisecond
	}
	if o.QuietMax <= 0 {
		o.QuietMax = 5 * time.Second
	}
	if o.UnorderedGrace <= 0 {
		o.UnorderedGrace = 5 * time.Second
	}
	return o
}

// World holds the objects. Make one with New.
type World struct {
	opts Options
	wake chan struct{} // holds a token when Run should look at the clock again

	mu       sync.Mutex
	synced   time.Time       // zero until Synced
	complete map[string]bool // kinds of policies of which an API server tells all
	objects  map[apis.Ref]apis.Object

	namespaces map[string]map[string]string // labels
	pods       map[podName]*pod             // that have an object, local or not
	listed     map[podName]int              // endpoints objects that list it on this node
	member     map[podName]*ident           // local pods
	idents     map[identity.Identifier]*ident
	identsIn   map[string]map[*ident]struct{} // by namespace

	policies   map[policy.PolicyRef]*policyState
	policiesIn map[string]map[*policyState]struct{} // by namespace, "" for cluster policies
	chunkOf    map[apis.Ref]*policyState            // policy of an endpoints object
	seen       map[policy.PolicyRef]struct{}        // policies that once had an object and are gone
	versions   uint64                               // of built contents

	timed   map[*policyState]struct{} // policies for which something will be due
	waiting map[*ident]struct{}       // identifiers for which something will be due
}

// New returns an empty World.
func New(opts Options) *World {
	return &World{
		opts:       opts.withDefaults(),
		wake:       make(chan struct{}, 1),
		complete:   map[string]bool{},
		objects:    map[apis.Ref]apis.Object{},
		namespaces: map[string]map[string]string{},
		pods:       map[podName]*pod{},
		listed:     map[podName]int{},
		member:     map[podName]*ident{},
		idents:     map[identity.Identifier]*ident{},
		identsIn:   map[string]map[*ident]struct{}{},
		policies:   map[policy.PolicyRef]*policyState{},
		policiesIn: map[string]map[*policyState]struct{}{},
		chunkOf:    map[apis.Ref]*policyState{},
		seen:       map[policy.PolicyRef]struct{}{},
		timed:      map[*policyState]struct{}{},
		waiting:    map[*ident]struct{}{},
	}
}

// Synced says that the first listing of everything is in, so that what was there is not missing.
// complete names the kinds of policies (apis.KindNetworkPolicy...) of which an API server has delivered
// every object, and can be asked about one that is missing; without an API server there are none. It may
// be called again when a kind is added.
func (w *World) Synced(complete ...string) []identity.Identifier {
	return w.change(func(b *batch) {
		if w.synced.IsZero() {
			w.synced = b.now
		}
		for _, kind := range complete {
			w.complete[kind] = true
		}
		for _, p := range w.policies {
			b.schedule(p)
		}
	})
}

// HasSynced says whether Synced was called.
func (w *World) HasSynced() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return !w.synced.IsZero()
}

// Upsert adds objects or replaces them by newer ones, in one step, and returns the identifiers affected.
func (w *World) Upsert(objects ...apis.Object) []identity.Identifier {
	return w.change(func(b *batch) {
		for _, o := range objects {
			b.upsert(o)
		}
	})
}

// Delete takes objects out, in one step, and returns the identifiers affected. Only the names of the
// objects matter; one that is not known is no error.
func (w *World) Delete(objects ...apis.Object) []identity.Identifier {
	return w.change(func(b *batch) {
		for _, o := range objects {
			if ref, ok := apis.RefOf(o); ok {
				b.delete(ref)
			}
		}
	})
}

// Replace makes these objects the only ones, in one step, and returns the identifiers affected. Objects
// with the pointers of last time cost nothing.
func (w *World) Replace(objects []apis.Object) []identity.Identifier {
	return w.change(func(b *batch) {
		keep := make(map[apis.Ref]struct{}, len(objects))
		for _, o := range objects {
			if ref, ok := apis.RefOf(o); ok {
				keep[ref] = struct{}{}
				b.upsert(o)
			}
		}
		var gone []apis.Ref
		for ref := range w.objects {
			if _, ok := keep[ref]; !ok {
				gone = append(gone, ref)
			}
		}
		slices.SortFunc(gone, apis.Ref.Compare)
		for _, ref := range gone {
			b.delete(ref)
		}
	})
}

// Identifiers returns those of all local pods, and those that are set running, sorted.
func (w *World) Identifiers() []identity.Identifier {
	w.mu.Lock()
	defer w.mu.Unlock()
	ids := make([]identity.Identifier, 0, len(w.idents))
	for id := range w.idents {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids
}

// HasPolicy says whether a policy is known, by its own object or by endpoints objects.
func (w *World) HasPolicy(ref policy.PolicyRef) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.policies[ref] != nil
}

// HasPod says whether a pod is known to be on this node and under policy.
func (w *World) HasPod(namespace, name string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.member[podName{namespace, name}] != nil
}
