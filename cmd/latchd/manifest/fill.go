package manifest

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"reflect"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
	kjson "sigs.k8s.io/json"

	"github.com/latch-cni/latch/cmd/latchd/apis"
)

// maxExpanded bounds the JSON form of one object, which aliases can make much longer than its text.
const maxExpanded = 16 << 20

// fill decodes a mapping into an object, and returns false with the reason if that is not possible. It
// goes through JSON, since the types of the API know only that, and keeps the line of every value. Fields
// that the object does not have are left out and returned, since a newer API may have them; one that is
// near a field it has is mistyped, and to leave that out could open a pod.
func fill(n *yaml.Node, o apis.Object) (leftOut []unknownField, p apis.Problem, ok bool) {
	t := reflect.TypeOf(o).Elem()
	w := writer{root: t}
	if err := w.node(n, t, 0); err != nil {
		line, message := locate(err)
		return nil, apis.Problem{Line: line, Message: message}, false
	}
	err := kjson.UnmarshalCaseSensitivePreserveInts(w.out, o)
	if err == nil {
		if u := w.typo; u != nil {
			return nil, apis.Problem{Line: u.line, Field: u.path, Message: "is no field of this kind" + didYouMean(u.near)}, false
		}
		return w.leftOut, apis.Problem{}, true
	}
	// Once more, in steps: the decoder does not know which element of a list it is in, nor of values that
	// read themselves where they are.
	finder := writer{root: t, find: true}
	if err := finder.node(n, t, 0); err == nil && finder.wrong != nil {
		return nil, *finder.wrong, false
	}
	return nil, apis.Problem{Line: n.Line, Message: strings.TrimPrefix(err.Error(), "json: ")}, false
}

// writer turns a tree into JSON, and notes the fields that the type of the object does not have.
type writer struct {
	root    reflect.Type
	at      []step // from the object to what is being written
	leftOut []unknownField
	typo    *unknownField
	find    bool          // the first value that its type cannot take
	wrong   *apis.Problem // that one

	out    []byte
	merges int // mappings and keys that were looked at for merging, though they may add nothing
}

// checkSize ends the work on an object that its aliases have made too large.
func (w *writer) checkSize(n *yaml.Node) error {
	if len(w.out)+w.merges > maxExpanded {
		return &lineError{n.Line, errors.New("grows too long by its aliases")}
	}
	return nil
}

// node writes a value that is read into a type, which is nil when that is not known.
func (w *writer) node(n *yaml.Node, t reflect.Type, depth int) error {
	from := len(w.out)
	err := w.value(n, t, depth)
	if err == nil && w.find && w.wrong == nil && t != nil {
		w.try(n, t, w.out[from:])
	}
	return err
}

func (w *writer) value(n *yaml.Node, t reflect.Type, depth int) error {
	if depth > maxDepth {
		return &lineError{n.Line, errors.New("nested too deeply")}
	}
	if err := w.checkSize(n); err != nil {
		return err
	}
	if n.Kind == yaml.AliasNode {
		return w.node(n.Alias, t, depth+1)
	}
	switch n.Kind {
	case yaml.MappingNode:
		return w.mapping(n, t, depth)
	case yaml.SequenceNode:
		w.out = append(w.out, '[')
		inner := element(t, reflect.Slice)
		for i, c := range n.Content {
			if i > 0 {
				w.out = append(w.out, ',')
			}
			w.at = append(w.at, step{index: i})
			if err := w.node(c, inner, depth+1); err != nil {
				return err
			}
			w.at = w.at[:len(w.at)-1]
		}
		w.out = append(w.out, ']')
		return nil
	case yaml.ScalarNode:
		return w.scalar(n)
	}
	return &lineError{n.Line, errors.New("empty document")}
}

func (w *writer) mapping(n *yaml.Node, t reflect.Type, depth int) error {
	seen := map[string]int{}
	w.out = append(w.out, '{')
	if err := w.pairs(n, t, depth, seen, false); err != nil {
		return err
	}
	w.out = append(w.out, '}')
	return nil
}

// pairs writes keys and values of a mapping. Merged ones ("<<") come last and give way to those that
// are there.
func (w *writer) pairs(n *yaml.Node, t reflect.Type, depth int, seen map[string]int, merged bool) error {
	if depth > maxDepth {
		return &lineError{n.Line, errors.New("nested too deeply")}
	}
	fields := fieldsOf(t)
	var merges []*yaml.Node
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		if key.Kind == yaml.AliasNode {
			key = key.Alias
		}
		if key.Kind != yaml.ScalarNode {
			return &lineError{key.Line, errors.New("a key must be a string")}
		}
		if key.ShortTag() == "!!merge" {
			merges = append(merges, value)
			continue
		}
		if first, ok := seen[key.Value]; ok {
			if merged {
				w.merges++
				continue
			}
			return &lineError{key.Line, fmt.Errorf("key %q is already on line %d", key.Value, first)}
		}
		if len(seen) > 0 {
			w.out = append(w.out, ',')
		}
		seen[key.Value] = key.Line
		w.text(key.Value)
		w.out = append(w.out, ':')
		if _, ok := fields[key.Value]; !ok && fields != nil {
			w.unknownKey(key.Value, key.Line, fields)
		}
		w.at = append(w.at, step{key: key.Value})
		if err := w.node(value, child(t, fields, key.Value), depth+1); err != nil {
			return err
		}
		w.at = w.at[:len(w.at)-1]
	}
	for _, m := range merges {
		if err := w.merge(m, t, depth+1, seen); err != nil {
			return err
		}
	}
	return nil
}

func (w *writer) merge(n *yaml.Node, t reflect.Type, depth int, seen map[string]int) error {
	if depth > maxDepth {
		return &lineError{n.Line, errors.New("nested too deeply")}
	}
	w.merges++
	if err := w.checkSize(n); err != nil {
		return err
	}
	switch n.Kind {
	case yaml.AliasNode:
		return w.merge(n.Alias, t, depth+1, seen)
	case yaml.MappingNode:
		return w.pairs(n, t, depth, seen, true)
	case yaml.SequenceNode:
		for _, c := range n.Content {
			if err := w.merge(c, t, depth+1, seen); err != nil {
				return err
			}
		}
		return nil
	}
	return &lineError{n.Line, errors.New("only a mapping can be merged")}
}

func (w *writer) scalar(n *yaml.Node) error {
	switch n.ShortTag() {
	case "!!null":
		w.out = append(w.out, "null"...)
	case "!!bool":
		var v bool
		if err := n.Decode(&v); err != nil {
			return &lineError{n.Line, fmt.Errorf("%q is no boolean", n.Value)}
		}
		w.out = strconv.AppendBool(w.out, v)
	case "!!int":
		var v int64
		if err := n.Decode(&v); err == nil {
			w.out = strconv.AppendInt(w.out, v, 10)
			return nil
		}
		fallthrough
	case "!!float":
		var v float64
		if err := n.Decode(&v); err != nil || math.IsInf(v, 0) || math.IsNaN(v) {
			return &lineError{n.Line, fmt.Errorf("%q is no number", n.Value)}
		}
		b, err := json.Marshal(v)
		if err != nil {
			return &lineError{n.Line, err}
		}
		w.out = append(w.out, b...)
	default: // strings, and what JSON knows as such: timestamps
		w.text(n.Value)
	}
	return nil
}

func (w *writer) text(s string) {
	b, _ := json.Marshal(s) // a string has always a JSON form
	w.out = append(w.out, b...)
}
