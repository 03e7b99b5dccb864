package world

import (
	"fmt"
	"maps"
	"slices"

	"github.com/latch-cni/latch/cmd/latchd/apis"
	"github.com/latch-cni/latch/shared/near"
)

// nowhere reports policies in namespaces of which nothing is known: neither the namespace itself nor a pod.
// Where manifests are written by hand that is a mistake in the name, and the policy acts on nothing.
func (w *World) nowhere() []apis.Problem {
	var suspects []*policyState
	for namespace, policies := range w.policiesIn {
		if namespace != "" && w.unknown(namespace) && len(w.identsIn[namespace]) == 0 {
			suspects = slices.AppendSeq(suspects, maps.Keys(policies))
		}
	}
	if len(suspects) == 0 {
		return nil
	}
	known := maps.Clone(w.namespaces)
	for name := range w.pods {
		known[name.namespace] = nil
	}
	for name := range w.listed {
		known[name.namespace] = nil
	}
	names := slices.Sorted(maps.Keys(known))
	var out []apis.Problem
	for _, p := range suspects {
		if _, ok := known[p.ref.Namespace]; ok || p.lists() {
			continue
		}
		message := fmt.Sprintf("acts on nothing: no Namespace and no Pod of namespace %q is known", p.ref.Namespace)
		if word := near.Word(p.ref.Namespace, names); word != "" {
			message += fmt.Sprintf("; did you mean %q?", word)
		}
		for _, object := range p.written() {
			out = append(out, apis.Problem{Object: object.String(), Field: "metadata.namespace", Message: message})
		}
	}
	return out
}

// lists tells whether endpoints objects name pods of the policy's namespace, on whatever node.
func (p *policyState) lists() bool {
	for _, c := range p.chunks {
		if c.lists {
			return true
		}
	}
	return false
}

// written is the object that somebody wrote of a policy: its own, or its endpoints objects.
func (p *policyState) written() (all []apis.Ref) {
	if p.object {
		return []apis.Ref{refOf(p.ref)}
	}
	for name := range p.chunks {
		all = append(all, apis.Ref{Kind: apis.KindPolicyEndpoint, Namespace: p.ref.Namespace, Name: name})
	}
	return all
}
