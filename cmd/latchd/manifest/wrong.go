package manifest

import (
	"fmt"
	"reflect"

	"go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	kjson "sigs.k8s.io/json"

	"github.com/latch-cni/latch/cmd/latchd/apis"
)

// try notes a value that its type cannot take. What is inside was tried before: the innermost is noted.
func (w *writer) try(n *yaml.Node, t reflect.Type, text []byte) {
	if kjson.UnmarshalCaseSensitivePreserveInts(text, reflect.New(t).Interface()) == nil {
		return
	}
	w.wrong = &apis.Problem{Line: n.Line, Field: w.path(), Message: fmt.Sprintf("is %s, want %s", given(n), wanted(t))}
}

// longest is how much of a wrong value is told.
const longest = 40

// given says what a manifest holds.
func given(n *yaml.Node) string {
	switch n.Kind {
	case yaml.AliasNode:
		return given(n.Alias)
	case yaml.MappingNode:
		return "a mapping"
	case yaml.SequenceNode:
		return "a sequence"
	}
	value := n.Value
	if len(value) > longest {
		value = value[:longest] + "..."
	}
	switch n.ShortTag() {
	case "!!int", "!!float":
		return "the number " + value
	case "!!bool", "!!null":
		return value
	}
	return fmt.Sprintf("the string %q", value)
}

// wanted says what a manifest has to hold for a Go type.
func wanted(t reflect.Type) string {
	switch t {
	case reflect.TypeFor[metav1.Time](), reflect.TypeFor[metav1.MicroTime]():
		return "a time like 2026-01-02T15:04:05Z"
	case reflect.TypeFor[resource.Quantity]():
		return "a quantity like 500m or 1Gi"
	case reflect.TypeFor[intstr.IntOrString]():
		return "an integer or a string"
	}
	switch t.Kind() {
	case reflect.Pointer:
		return wanted(t.Elem())
	case reflect.Struct, reflect.Map:
		return "a mapping"
	case reflect.Slice, reflect.Array:
		return "a sequence"
	case reflect.Int32:
		return "an integer of 32 bits"
	case reflect.Int, reflect.Int64:
		return "an integer"
	case reflect.Bool:
		return "true or false"
	case reflect.String:
		return "a string"
	}
	return "a " + t.Kind().String()
}
