package manifest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/latch-cni/latch/cmd/latchd/apis"
)

// Encode writes objects so that Decode reads the same, but for their lines.
func Encode(objects []Object) ([]byte, error) {
	var out bytes.Buffer
	for _, o := range objects {
		text, err := json.Marshal(withKind(o))
		if err != nil {
			return nil, fmt.Errorf("write %s: %w", o.Ref, err)
		}
		out.WriteString("---\n")
		out.Write(append(text, '\n'))
	}
	return out.Bytes(), nil
}

// withKind returns an object that says its kind: one that was in a List may not. Others share what it holds.
func withKind(o Object) apis.Object {
	c := reflect.New(reflect.TypeOf(o.Object).Elem())
	c.Elem().Set(reflect.ValueOf(o.Object).Elem())
	named := c.Interface().(apis.Object)
	k := kinds[o.Ref.Kind]
	named.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{Group: k.group, Version: k.version, Kind: o.Ref.Kind})
	return named
}
