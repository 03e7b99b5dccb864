package v1alpha1

import (
	"bytes"
	"encoding/json"
	"reflect"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
)

// fill sets every field of a value to something that is not zero, one element per list.
func fill(v reflect.Value, depth int) {
	if depth > 12 || v.Type() == reflect.TypeFor[metav1.Time]() || v.Type() == reflect.TypeFor[metav1.ObjectMeta]() {
		return
	}
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem(), depth+1)
	case reflect.Struct:
		for i := range v.NumField() {
			fill(v.Field(i), depth+1)
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(v.Index(0), depth+1)
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		fill(key, depth+1)
		fill(value, depth+1)
		v.SetMapIndex(key, value)
	case reflect.String:
		v.SetString("text")
	case reflect.Int32, reflect.Int64:
		v.SetInt(7)
	}
}

// spoil changes every scalar that can be reached from a value, through all pointers and lists.
func spoil(v reflect.Value, depth int) {
	if depth > 12 || v.Type() == reflect.TypeFor[metav1.Time]() {
		return
	}
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			spoil(v.Elem(), depth+1)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			spoil(v.Field(i), depth+1)
		}
	case reflect.Slice:
		for i := range v.Len() {
			spoil(v.Index(i), depth+1)
		}
	case reflect.Map:
		for _, key := range v.MapKeys() {
			v.SetMapIndex(key, reflect.ValueOf("spoilt").Convert(v.Type().Elem()))
		}
	case reflect.String:
		v.SetString("spoilt")
	case reflect.Int32, reflect.Int64:
		v.SetInt(-1)
	}
}

// TestDeepCopyObject changes everything in a copy: the original must not notice.
func TestDeepCopyObject(t *testing.T) {
	for _, o := range []runtime.Object{
		&PolicyEndpoint{}, &PolicyEndpointList{},
		&ClusterPolicyEndpoint{}, &ClusterPolicyEndpointList{},
		&ApplicationNetworkPolicy{}, &ApplicationNetworkPolicyList{},
		&ClusterNetworkPolicy{}, &ClusterNetworkPolicyList{},
	} {
		t.Run(reflect.TypeOf(o).Elem().Name(), func(t *testing.T) {
			fill(reflect.ValueOf(o).Elem(), 0)
			before := encode(t, o)
			c := o.DeepCopyObject()
			if got := encode(t, c); !bytes.Equal(before, got) {
				t.Fatalf("copy is\n%s\nwant\n%s", got, before)
			}
			spoil(reflect.ValueOf(c).Elem(), 0)
			if after := encode(t, o); !bytes.Equal(before, after) {
				t.Errorf("original changed with its copy: now\n%s\nwas\n%s", after, before)
			}
		})
	}
}

func encode(t *testing.T, o any) []byte {
	t.Helper()
	b, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestScheme decodes an object by its apiVersion and kind, as a REST client does.
func TestScheme(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	decoder := serializer.NewCodecFactory(scheme).UniversalDeserializer()
	o, _, err := decoder.Decode([]byte(`{"apiVersion":"networking.k8s.aws/v1alpha1","kind":"ClusterPolicyEndpoint",
		"metadata":{"name":"x-1"},"spec":{"policyRef":{"name":"x"},"tier":"Admin","priority":3,"unknown":1}}`), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	if p, ok := o.(*ClusterPolicyEndpoint); !ok || p.Name != "x-1" || p.Spec.Priority != 3 {
		t.Errorf("decoded %T %+v", o, o)
	}
}
