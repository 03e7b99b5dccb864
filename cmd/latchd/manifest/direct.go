package manifest

import (
	"bytes"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kjson "sigs.k8s.io/json"

	"github.com/latch-cni/latch/cmd/latchd/apis"
	"github.com/latch-cni/latch/cmd/latchd/apis/v1alpha1"
	"github.com/latch-cni/latch/cmd/latchd/world"
)

// direct decodes a section that is one object in JSON with nothing wrong about it, without a tree of its
// text: that of a policy of 100,000 peers takes hundreds of megabytes. It returns false, and has done
// nothing, when anything has to be told about the section, or it is something else.
func (d *decoder) direct(s section) bool {
	text := bytes.TrimLeft(s.data, " \t\r\n")
	if len(text) == 0 || text[0] != '{' {
		return false
	}
	var head struct {
		metav1.TypeMeta
		Spec struct { // to be counted
			Ingress []struct{} `json:"ingress"`
			Egress  []struct{} `json:"egress"`
		} `json:"spec"`
	}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(text, &head); err != nil {
		return false
	}
	newObject, _, err := maker(head.APIVersion, head.Kind)
	if err != nil || newObject == nil {
		return false
	}
	o := newObject()
	if e, ok := o.(*v1alpha1.PolicyEndpoint); ok { // else lists grow by copies, which are garbage
		e.Spec.Ingress = slices.Grow(e.Spec.Ingress, len(head.Spec.Ingress))
		e.Spec.Egress = slices.Grow(e.Spec.Egress, len(head.Spec.Egress))
	}
	if wrong, err := kjson.UnmarshalStrict(text, o); err != nil || len(wrong) > 0 {
		return false
	}
	if _, ok := check(o); !ok || len(world.Check(o)) > 0 {
		return false
	}
	ref, _ := apis.RefOf(o)
	if _, twice := d.seen[ref]; twice {
		return false
	}
	before := s.data[:len(s.data)-len(text)]
	d.add(o, ref, s.line+bytes.Count(before, []byte("\n")))
	return true
}

// add adds an object that starts on a line to the content.
func (d *decoder) add(o apis.Object, ref apis.Ref, line int) {
	switch o := o.(type) {
	case *v1alpha1.PolicyEndpoint:
		o.Spec.Share()
	case *v1alpha1.ClusterPolicyEndpoint:
		o.Spec.Share()
	}
	line = d.line(line)
	d.seen[ref] = line
	d.content.Objects = append(d.content.Objects, Object{Object: o, Ref: ref, File: d.file, Line: line})
	if p, found := world.HostBits(o); found {
		p.File, p.Line, p.Object = d.file, line, ref.String()
		d.content.Ignored = append(d.content.Ignored, p)
	}
}
