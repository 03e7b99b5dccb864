package manifest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/latch-cni/latch/cmd/latchd/apis"
)

// Encode writes objects so that Decode reads the same, but for their lines, and for what nobody here reads of
// them: the environments of pods, and annotations, are not in it.
func Encode(objects []Object) ([]byte, error) {
	var out bytes.Buffer
	for _, o := range objects {
		text, err := json.Marshal(whatIsRead(o))
		if err != nil {
			return nil, fmt.Errorf("write %s: %w", o.Ref, err)
		}
		out.WriteString("---\n")
		out.Write(append(text, '\n'))
	}
	return out.Bytes(), nil
}

// whatIsRead returns what is read of an object, with its kind: one that was in a List may not say it. Others share
// what it holds.
func whatIsRead(o Object) apis.Object {
	c := reflect.New(reflect.TypeOf(o.Object).Elem())
	c.Elem().Set(reflect.ValueOf(o.Object).Elem())
	part := c.Interface().(apis.Object)
	k := kinds[o.Ref.Kind]
	part.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{Group: k.group, Version: k.version, Kind: o.Ref.Kind})
	part.SetAnnotations(nil)
	part.SetManagedFields(nil)
	if p, ok := part.(*corev1.Pod); ok {
		p.Spec = corev1.PodSpec{NodeName: p.Spec.NodeName, HostNetwork: p.Spec.HostNetwork}
		p.Status = corev1.PodStatus{Phase: p.Status.Phase, PodIP: p.Status.PodIP, PodIPs: p.Status.PodIPs}
	}
	return part
}
