package source

import (
	"context"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/latch-cni/latch/cmd/latchd/apis"
	"github.com/latch-cni/latch/cmd/latchd/apis/v1alpha1"
)

var here = []netip.Addr{netip.MustParseAddr("10.0.0.10"), netip.MustParseAddr("fd00:10::10")}

func gvkOf(resource string) schema.GroupVersionKind {
	for _, k := range kindsOf("") {
		if k.resource == resource {
			return k.group.WithKind(k.name)
		}
	}
	panic("no kind is called " + resource)
}

func kindOf(resource string) string { return gvkOf(resource).Kind }

func versionOf(resource string) string { return gvkOf(resource).GroupVersion().String() }

func meta(namespace, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: namespace, Name: name}
}

func podOf(namespace, name, uid string, labels map[string]string) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: meta(namespace, name)}
	p.UID, p.Labels, p.Spec.NodeName = types.UID(uid), labels, "n1"
	return p
}

func namespaceOf(name string) *corev1.Namespace { return &corev1.Namespace{ObjectMeta: meta("", name)} }

func nodeOf(addrs ...string) *corev1.Node {
	n := &corev1.Node{ObjectMeta: meta("", "n1")}
	for _, a := range addrs {
		n.Status.Addresses = append(n.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: a})
	}
	n.Status.Addresses = append(n.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeExternalIP, Address: "203.0.113.5"},
		corev1.NodeAddress{Type: corev1.NodeHostName, Address: "n1"})
	return n
}

func networkPolicyOf(namespace, name string) *networkingv1.NetworkPolicy {
	return &networkingv1.NetworkPolicy{ObjectMeta: meta(namespace, name)}
}

func endpointOf(namespace, name string, listed ...v1alpha1.PodEndpoint) *v1alpha1.PolicyEndpoint {
	e := &v1alpha1.PolicyEndpoint{ObjectMeta: meta(namespace, name)}
	e.Spec.PolicyRef = v1alpha1.PolicyReference{Namespace: namespace, Name: name}
	e.Spec.PodSelectorEndpoints = listed
	return e
}

// recorder is a sink that remembers.
type recorder struct {
	mu       sync.Mutex
	objects  map[apis.Ref]apis.Object
	deleted  []string
	upserts  int
	complete []string
	synced   int
	addrs    []netip.Addr
	refuse   error // of NodeAddrs
	orphans  []apis.Ref
	gone     []string
}

func newRecorder() *recorder { return &recorder{objects: map[apis.Ref]apis.Object{}} }

func (r *recorder) Change(upserted, deleted []apis.Object) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, o := range upserted {
		ref, _ := apis.RefOf(o)
		r.objects[ref] = o
		r.upserts++
	}
	for _, o := range deleted {
		ref, _ := apis.RefOf(o)
		delete(r.objects, ref)
		r.deleted = append(r.deleted, ref.String())
	}
}

func (r *recorder) Synced(complete ...string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.synced++
	r.complete = append(r.complete, complete...)
	slices.Sort(r.complete)
}

func (r *recorder) Orphans(kind string) []apis.Ref {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(r.orphans), func(ref apis.Ref) bool { return ref.Kind != kind })
}

func (r *recorder) Gone(orphan apis.Ref, _ time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.orphans = slices.DeleteFunc(r.orphans, func(ref apis.Ref) bool { return ref == orphan })
	r.gone = append(r.gone, orphan.String())
	slices.Sort(r.gone)
}

func (r *recorder) NodeAddrs(_ context.Context, addrs []netip.Addr) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.refuse == nil {
		r.addrs = addrs
	}
	return r.refuse
}

// look calls f with the recorder locked.
func (r *recorder) look(f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f()
}

func (r *recorder) names() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []string
	for ref := range r.objects {
		out = append(out, ref.String())
	}
	slices.Sort(out)
	return out
}

func (r *recorder) isSynced() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.synced > 0
}

func start(t *testing.T, s *server, r *recorder, addrs ...netip.Addr) *Source {
	t.Helper()
	src, err := New(Options{Kubeconfig: s.kubeconfig(), QPS: 100, Burst: 100, Node: "n1", NodeAddrs: addrs, Log: slog.New(slog.DiscardHandler)}, r)
	if err != nil {
		t.Fatal(err)
	}
	src.progress.confirm = 700 * time.Millisecond
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { src.Run(ctx) })
	t.Cleanup(func() {
		cancel()
		wg.Wait()
	})
	return src
}

func eventually(t *testing.T, what string, check func() bool) {
	t.Helper()
	for deadline := time.Now().Add(15 * time.Second); !check(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within 15s: %s", what)
		}
	}
}
