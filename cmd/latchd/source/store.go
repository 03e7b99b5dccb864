package source

import (
	"fmt"
	"reflect"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"

	"github.com/latch-cni/latch/cmd/latchd/apis"
)

// store holds the trimmed objects of one kind for its reflector, and passes on what changed. Only the
// reflector's goroutine calls it.
type store struct {
	kind    *kind
	scope   *scope
	objects map[string]apis.Object

	changed func(upserted, deleted []apis.Object)
	listed  func() // after every complete list
}

var _ cache.TransformingStore = (*store)(nil)

func (s *store) trim(obj any) (apis.Object, error) {
	o, ok := obj.(runtime.Object)
	if !ok || reflect.TypeOf(o) != reflect.TypeOf(s.kind.example) {
		return nil, fmt.Errorf("trim %s: got a %T", s.kind.name, obj)
	}
	return s.kind.trim(s.scope, o), nil
}

// Transformer trims what the reflector collects while a list is streamed.
func (s *store) Transformer() cache.TransformFunc {
	return func(obj any) (any, error) { return s.trim(obj) }
}

// Add and Update both take over the newer version of an object.
func (s *store) Add(obj any) error { return s.Update(obj) }

// Update takes over the newer version of an object. Without a difference that matters, nothing happens.
func (s *store) Update(obj any) error {
	o, err := s.trim(obj)
	if err != nil {
		return err
	}
	if s.keep(o) {
		s.changed([]apis.Object{o}, nil)
	}
	return nil
}

// keep stores an object and says whether it differs from the one before.
func (s *store) keep(o apis.Object) bool {
	key := keyOf(o)
	if old, ok := s.objects[key]; ok && reflect.DeepEqual(old, o) {
		return false
	}
	s.objects[key] = o
	return true
}

// Delete forgets an object.
func (s *store) Delete(obj any) error {
	o, err := s.trim(obj)
	if err != nil {
		return err
	}
	old, ok := s.objects[keyOf(o)]
	if !ok {
		return nil
	}
	delete(s.objects, keyOf(o))
	s.changed(nil, []apis.Object{old})
	return nil
}

// Replace takes over a complete list. What was known and is not in it is gone.
func (s *store) Replace(list []any, _ string) error {
	listed := make(map[string]struct{}, len(list))
	var upserted, deleted []apis.Object
	for _, obj := range list {
		o, err := s.trim(obj)
		if err != nil {
			return err
		}
		listed[keyOf(o)] = struct{}{}
		if s.keep(o) {
			upserted = append(upserted, o)
		}
	}
	for key, o := range s.objects {
		if _, ok := listed[key]; !ok {
			delete(s.objects, key)
			deleted = append(deleted, o)
		}
	}
	if len(upserted)+len(deleted) > 0 {
		s.changed(upserted, deleted)
	}
	s.listed()
	return nil
}

// Resync has nothing to do: nothing here goes out of date by itself.
func (s *store) Resync() error { return nil }

func keyOf(o apis.Object) string { return o.GetNamespace() + "/" + o.GetName() }
