package manifest

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"

	"github.com/latch-cni/latch/shared/near"
)

// maxLeftOut bounds what is told of one object.
const maxLeftOut = 100

// unknownField is a key that the object's type does not have.
type unknownField struct {
	path string
	line int
	near string // the field that is probably meant, or empty
}

// step is one step from an object to a value inside: a key, or an index when the key is empty.
type step struct {
	key   string
	index int
}

// unknownKey notes a key of a struct that the struct does not have. One that is near a field is a typo
// where the field is read; of those the first is enough, since the object is broken.
func (w *writer) unknownKey(key string, line int, fields map[string]reflect.Type) {
	near := ""
	if w.typo == nil && w.isRead() {
		near = nearest(key, fields)
	}
	if near == "" && len(w.leftOut) >= maxLeftOut {
		return
	}
	w.at = append(w.at, step{key: key})
	u := unknownField{w.path(), line, near}
	w.at = w.at[:len(w.at)-1]
	if near != "" {
		w.typo = &u
		return
	}
	w.leftOut = append(w.leftOut, u)
}

// isRead tells whether a mistyped field here could change what is in force. Nobody reads status, nor
// what is inside a pod's spec, where Kubernetes adds fields with every version.
func (w *writer) isRead() bool {
	if len(w.at) == 0 {
		return true
	}
	inside := w.root == reflect.TypeFor[corev1.Pod]() && w.at[0].key == "spec" && len(w.at) > 1
	return w.at[0].key != "status" && !inside
}

func (w *writer) path() string {
	var b strings.Builder
	for i, s := range w.at {
		switch {
		case s.key == "":
			fmt.Fprintf(&b, "[%d]", s.index)
		case i > 0:
			b.WriteString("." + s.key)
		default:
			b.WriteString(s.key)
		}
	}
	return b.String()
}

// child returns the type of the value of a key, and nil when that is not known. Fields are those of the
// mapping's type if it is a struct.
func child(t reflect.Type, fields map[string]reflect.Type, key string) reflect.Type {
	if fields != nil {
		return fields[key]
	}
	return element(t, reflect.Map)
}

// element returns the type of what a map or a slice holds.
func element(t reflect.Type, kind reflect.Kind) reflect.Type {
	if t = plain(t); t == nil || t.Kind() != kind {
		return nil
	}
	return t.Elem()
}

// plain looks through pointers, and returns nil for a type that reads JSON by itself.
func plain(t reflect.Type) reflect.Type {
	for t != nil && t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t == nil || reflect.PointerTo(t).Implements(reflect.TypeFor[json.Unmarshaler]()) {
		return nil
	}
	return t
}

var knownFields sync.Map // of reflect.Type, to map[string]reflect.Type

// fieldsOf returns the JSON fields of a struct, and nil for other types.
func fieldsOf(t reflect.Type) map[string]reflect.Type {
	if t = plain(t); t == nil || t.Kind() != reflect.Struct {
		return nil
	}
	if known, ok := knownFields.Load(t); ok {
		return known.(map[string]reflect.Type)
	}
	fields := map[string]reflect.Type{}
	for i := range t.NumField() {
		f := t.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case name == "-":
		case name == "" && f.Anonymous:
			for name, inner := range fieldsOf(f.Type) {
				fields[name] = inner
			}
		case f.IsExported():
			if name == "" {
				name = f.Name
			}
			fields[name] = f.Type
		}
	}
	knownFields.Store(t, fields)
	return fields
}

// nearest returns the known name that an unknown one is probably meant to be, or nothing.
func nearest[V any](name string, known map[string]V) string {
	best, at := "", maxEdits+1
	for k := range known {
		if d := edits(name, k); d < at || d == at && d <= maxEdits && k < best {
			best, at = k, d
		}
	}
	return best
}

// maxEdits is how many mistakes make a typo. In a short name it is one: two make "Node" of "Pod".
const maxEdits, maxEditsShort, short = 2, 1, 4

// edits counts the letters to insert, delete, change, or swap with the next, to make one name of the
// other; case does not count. Names that are not near are maxEdits+1 apart.
func edits(a, b string) int {
	a, b = strings.ToLower(a), strings.ToLower(b)
	limit := maxEdits
	if min(len(a), len(b)) <= short {
		limit = maxEditsShort
	}
	if max(len(a), len(b))-min(len(a), len(b)) > limit {
		return maxEdits + 1
	}
	if d := near.Distance(a, b, 1); d <= limit {
		return d
	}
	return maxEdits + 1
}
