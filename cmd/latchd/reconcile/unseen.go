package reconcile

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/latch-cni/latch/cmd/latchd/adopt"
	"github.com/latch-cni/latch/cmd/latchd/world"
	"github.com/latch-cni/latch/shared/identity"
	"github.com/latch-cni/latch/shared/state"
)

// adoptedIfName is the name of an adopted interface in its sandbox, which nobody looks into: the runtimes'.
const adoptedIfName = "eth0"

// adopters work beside the others while there are pods to adopt at the start. Most of the time an adoption
// waits for a list of what the kernel tracks, and who waits together shares it.
const adopters = 32

// unseen are pods that run and have no attachment: they were started before latch was in the chain.
type unseen struct {
	flows adopt.Shared

	mu      sync.Mutex
	found   map[identity.Identifier][]state.Attachment // to be adopted
	reasons map[podKey]string                          // why a pod cannot be adopted
}

func (u *unseen) of(id identity.Identifier) []state.Attachment {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.found[id]
}

// count is of how many identifiers there are pods to adopt.
func (u *unseen) count() int {
	u.mu.Lock()
	defer u.mu.Unlock()
	return len(u.found)
}

// FindUnseen looks for pods to adopt. The next run for their identifiers binds them.
func (r *Reconciler) FindUnseen() error {
	atts, err := r.store.ListAttachments()
	if err != nil {
		return fmt.Errorf("look for pods to adopt: %w", err) // what cannot be read may be theirs
	}
	settings, err := r.store.ReadSettings()
	if err != nil {
		return fmt.Errorf("look for pods to adopt: %w", err)
	}
	reasons := map[podKey]string{}
	var candidates []candidate
	for _, p := range r.world.LocalPods() {
		a := state.Attachment{
			ContainerID: state.AdoptedContainer(p.UID), IfName: adoptedIfName, PodNamespace: p.Namespace, PodName: p.Name, PodUID: p.UID, Adopted: true,
		}
		if p.UID == "" {
			a.ContainerID = state.AdoptedContainer(identity.PodKey(p.Namespace, p.Name))
		}
		if recorded(atts, a) {
			continue
		}
		a.Interfaces, err = adopt.Interfaces(p.Addrs)
		for i := range a.Interfaces {
			in := &a.Interfaces[i]
			in.AntiSpoof = settings.AntiSpoof != nil && *settings.AntiSpoof && (in.Addr4.IsValid() || in.Addr6.IsValid()) // else its own are not known
		}
		if err == nil {
			err = taken(atts, a)
		}
		switch {
		case err == nil:
			candidates = append(candidates, candidate{p, a})
		case !p.Terminating: // else it has ended by now
			reasons[podKey{p.Namespace, p.Name}] = err.Error()
		}
	}
	found := map[identity.Identifier][]state.Attachment{}
	for _, c := range candidates {
		if rival := c.rival(candidates); rival == "" {
			found[c.pod.Identifier] = append(found[c.pod.Identifier], c.attachment)
		} else {
			reasons[podKey{c.pod.Namespace, c.pod.Name}] = "its addresses lead to the interface of pod " + rival + ", too"
		}
	}
	r.unseen.mu.Lock()
	defer r.unseen.mu.Unlock()
	for p, reason := range reasons {
		if r.unseen.reasons[p] != reason {
			r.log.Warn("a pod runs without policy, and cannot be adopted", "pod", p.namespace+"/"+p.name, "reason", reason)
		}
	}
	r.unseen.found, r.unseen.reasons = found, reasons
	return nil
}

// candidate is a pod that may be adopted.
type candidate struct {
	pod        world.LocalPod
	attachment state.Attachment
}

// rival is another candidate with the same interface that has as good a claim: the API server may tell
// addresses of a pod that has ended, which another one has got since.
func (c candidate) rival(all []candidate) string {
	for _, o := range all {
		same := o.pod.PodRef != c.pod.PodRef && sharesInterface(o.attachment, c.attachment)
		if same && (c.pod.Terminating || !o.pod.Terminating) {
			return o.pod.Namespace + "/" + o.pod.Name
		}
	}
	return ""
}

// recorded tells whether a pod has an attachment, other than a begun adoption.
func recorded(atts []state.Attachment, pod state.Attachment) bool {
	return slices.ContainsFunc(atts, func(a state.Attachment) bool {
		return isOf(a, pod.PodNamespace, pod.PodName, pod.PodUID) && (!a.Adopted || a.Phase == state.PhaseEnforced)
	})
}

// isOf compares uids as far as both sides know them: a directory of manifests has none.
func isOf(a state.Attachment, namespace, name, uid string) bool {
	return a.PodNamespace == namespace && a.PodName == name && (a.PodUID == "" || uid == "" || a.PodUID == uid)
}

// taken tells whether an interface is that of another pod's attachment.
func taken(atts []state.Attachment, pod state.Attachment) error {
	for _, a := range atts {
		if sharesInterface(a, pod) && !isOf(a, pod.PodNamespace, pod.PodName, pod.PodUID) {
			return fmt.Errorf("its addresses lead to the interface of pod %s/%s", a.PodNamespace, a.PodName)
		}
	}
	return nil
}

func sharesInterface(a, b state.Attachment) bool {
	return slices.ContainsFunc(a.Interfaces, func(in state.Interface) bool {
		return slices.ContainsFunc(b.Interfaces, func(i state.Interface) bool { return i.Ifindex == in.Ifindex && i.Name == in.Name })
	})
}

// stillUnseen are those of an identifier's unseen pods that it still has, and that nobody has added since.
func (r *Reconciler) stillUnseen(d world.Desired, found []state.Attachment) (still []state.Attachment) {
	if len(found) == 0 {
		return nil
	}
	atts, err := r.store.ListAttachments()
	if err != nil {
		r.log.Warn("adoption waits until all records can be read", "error", err)
		return nil
	}
	for _, a := range found {
		has := slices.ContainsFunc(d.Pods, func(p world.PodRef) bool { return isOf(a, p.Namespace, p.Name, p.UID) })
		if has && !recorded(atts, a) && taken(atts, a) == nil {
			a.Interfaces = slices.Clone(a.Interfaces)
			still = append(still, a)
		}
	}
	return still
}

// adopted notes that there is nothing left to adopt for an identifier.
func (r *Reconciler) adopted(id identity.Identifier, now []state.Attachment) {
	r.unseen.mu.Lock()
	delete(r.unseen.found, id)
	r.unseen.mu.Unlock()
	for _, a := range now {
		r.log.Info("adopted a pod that ran already", "identifier", id, "pod", a.PodNamespace+"/"+a.PodName, "interface", a.Interfaces[0].Name)
	}
}

// NotAdopted are the pods that run without policy, and why.
func (r *Reconciler) NotAdopted() []state.NotAdopted {
	r.unseen.mu.Lock()
	reasons := maps.Clone(r.unseen.reasons)
	r.unseen.mu.Unlock()
	var out []state.NotAdopted
	for p, reason := range reasons {
		if r.world.HasPod(p.namespace, p.name) {
			out = append(out, state.NotAdopted{Namespace: p.namespace, Name: p.name, Reason: reason})
		}
	}
	slices.SortFunc(out, func(a, b state.NotAdopted) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return out
}

// added notes that a runtime has added a pod.
func (u *unseen) added(p podKey) {
	u.mu.Lock()
	defer u.mu.Unlock()
	delete(u.reasons, p)
}
