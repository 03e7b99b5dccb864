package manifest

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/latch-cni/latch/cmd/latchd/apis"
	"github.com/latch-cni/latch/cmd/latchd/world"
)

// Object is one decoded object and where it was found.
type Object struct {
	apis.Object
	Ref  apis.Ref
	File string
	Line int // of the first line of the object

	// Wrong are values that cannot be read, as package world judges. Without an earlier version the object is in
	// force all the same, so that what it closes is closed.
	Wrong []apis.Problem
}

// Content is what a file holds.
type Content struct {
	Objects  []Object       // in the order of the file, every Ref once
	Problems []apis.Problem // each is a document, or an item of a List, that is left out
	Ignored  []apis.Problem // documents of kinds that do not matter here, and fields that the kind does not have
}

// Decode reads all documents of a file. The name is for messages, and a name that ends in .json decides
// which syntax a broken file is measured by.
func Decode(name string, data []byte) Content {
	d := decoder{file: name, lines: bytes.Count(data, []byte("\n")) + 1, seen: map[apis.Ref]int{}}
	for _, s := range split(data) {
		if !d.direct(s) {
			d.section(s)
		}
	}
	return d.content
}

// section decodes all documents of a section, by way of a tree that knows the line of everything.
func (d *decoder) section(s section) {
	nodes, err := parse(d.file, s.data)
	for _, n := range nodes {
		shift(n, s.line-1)
		d.document(n)
	}
	if err != nil {
		line, message := locate(err)
		d.report(apis.Problem{Line: min(line, s.lines()) + s.line - 1, Message: message})
	}
}

type decoder struct {
	file    string
	lines   int
	seen    map[apis.Ref]int // line of the first object of a name
	content Content
}

func (d *decoder) report(p apis.Problem) {
	p.File, p.Line = d.file, d.line(p.Line)
	d.content.Problems = append(d.content.Problems, p)
}

// line keeps a line inside the file: to YAML, characters other than a newline end lines too.
func (d *decoder) line(n int) int { return min(max(n, 1), d.lines) }

// document decodes one YAML or JSON document, or reports it.
func (d *decoder) document(n *yaml.Node) {
	if n.Kind == yaml.DocumentNode {
		if len(n.Content) != 1 {
			return
		}
		n = n.Content[0]
	}
	if n.Kind == yaml.ScalarNode && n.ShortTag() == "!!null" {
		return
	}
	d.object(n, "", "")
}

// object decodes a mapping. Items of a typed List have no kind of their own: they get their List's.
func (d *decoder) object(n *yaml.Node, apiVersion, kind string) {
	if n.Kind != yaml.MappingNode {
		d.report(apis.Problem{Line: n.Line, Message: "want a mapping with apiVersion and kind"})
		return
	}
	if v, ok := field(n, "apiVersion"); ok {
		apiVersion = v.Value
	}
	if v, ok := field(n, "kind"); ok {
		kind = v.Value
	}
	if apiVersion == "" || kind == "" {
		d.report(apis.Problem{Line: n.Line, Message: "apiVersion or kind is missing"})
		return
	}
	if item, ok := listOf(kind); ok {
		d.list(n, apiVersion, item)
		return
	}
	newObject, wrong, err := maker(apiVersion, kind)
	if err != nil {
		d.report(apis.Problem{Object: nameOf(n, kind), Line: lineOf(n, wrong), Field: wrong, Message: err.Error()})
		return
	}
	if newObject == nil {
		d.content.Ignored = append(d.content.Ignored, apis.Problem{
			File: d.file, Line: d.line(n.Line), Object: nameOf(n, kind),
			Message: fmt.Sprintf("%s of %s is not a kind that matters here", kind, apiVersion),
		})
		return
	}
	d.keep(n, kind, newObject())
}

// list decodes the items of a List one by one.
func (d *decoder) list(n *yaml.Node, apiVersion, kind string) {
	items, ok := field(n, "items")
	if !ok {
		for i := 0; i+1 < len(n.Content); i += 2 {
			if key := n.Content[i]; edits(key.Value, "items") <= maxEdits {
				d.report(apis.Problem{Line: key.Line, Field: key.Value, Message: "is no field of this kind" + didYouMean("items")})
			}
		}
		return
	}
	if items.ShortTag() == "!!null" {
		return
	}
	if items.Kind != yaml.SequenceNode {
		d.report(apis.Problem{Line: items.Line, Field: "items", Message: "want a sequence"})
		return
	}
	if kind == "" {
		apiVersion = ""
	}
	for _, item := range items.Content {
		if item.Kind == yaml.AliasNode {
			item = item.Alias
		}
		if v, ok := field(item, "kind"); ok {
			if _, nested := listOf(v.Value); nested {
				d.report(apis.Problem{Line: item.Line, Message: "a List inside a List"})
				continue
			}
		}
		d.object(item, apiVersion, kind)
	}
}

// keep fills an object from a mapping and adds it to the content, or reports it.
func (d *decoder) keep(n *yaml.Node, kind string, o apis.Object) {
	leftOut, p, ok := fill(n, o)
	if !ok {
		p.Object = nameOf(n, kind)
		d.report(p)
		return
	}
	for _, u := range leftOut {
		if !ours(kind, u.path) {
			continue
		}
		d.content.Ignored = append(d.content.Ignored, apis.Problem{
			File: d.file, Line: d.line(u.line), Object: nameOf(n, kind), Field: u.path, Message: "is no field of this kind and is left out",
		})
	}
	if p, ok := check(o); !ok {
		p.Object, p.Line = nameOf(n, kind), n.Line
		d.report(p)
		return
	}
	ref, _ := apis.RefOf(o)
	if first, ok := d.seen[ref]; ok {
		d.report(apis.Problem{
			Object: ref.String(), Line: n.Line,
			Message: fmt.Sprintf("the same object is on line %d, which is the one that counts", first),
		})
		return
	}
	d.add(o, ref, n.Line)
	wrong := world.Check(o)
	for i := range wrong {
		wrong[i].File, wrong[i].Line = d.file, d.line(lineAt(n, wrong[i].Field))
	}
	d.content.Objects[len(d.content.Objects)-1].Wrong = wrong
}

// ours tells whether an unknown field should be known. Status is not read, and of policies whose rules
// come from endpoints objects the rules are not.
func ours(kind, field string) bool {
	if field == "status" || strings.HasPrefix(field, "status.") {
		return false
	}
	rules := strings.HasPrefix(field, "spec.ingress[") || strings.HasPrefix(field, "spec.egress[")
	return !rules || kind == apis.KindPolicyEndpoint || kind == apis.KindClusterPolicyEndpoint || kind == apis.KindNetworkPolicy
}

// field finds a key of a mapping.
func field(n *yaml.Node, key string) (*yaml.Node, bool) {
	if n.Kind != yaml.MappingNode {
		return nil, false
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value != key {
			continue
		}
		if v := n.Content[i+1]; v.Kind != yaml.AliasNode {
			return v, true
		}
		return n.Content[i+1].Alias, true
	}
	return nil, false
}

// lineOf returns the line of the value of a key, or that of the mapping.
func lineOf(n *yaml.Node, key string) int {
	if v, ok := field(n, key); ok {
		return v.Line
	}
	return n.Line
}

// lineAt returns the line of the value at a path like spec.ingress[2].cidr, or of the innermost that is there.
func lineAt(n *yaml.Node, path string) int {
	for _, step := range strings.FieldsFunc(path, func(r rune) bool { return r == '.' || r == '[' || r == ']' }) {
		next, ok := field(n, step)
		if i, err := strconv.Atoi(step); err == nil && n.Kind == yaml.SequenceNode && i < len(n.Content) {
			next, ok = n.Content[i], true
			if next.Kind == yaml.AliasNode {
				next = next.Alias
			}
		}
		if !ok {
			break
		}
		n = next
	}
	return n.Line
}

// nameOf names a document as far as it can be read.
func nameOf(n *yaml.Node, kind string) string {
	ref := apis.Ref{Kind: kind}
	if meta, ok := field(n, "metadata"); ok {
		if v, ok := field(meta, "name"); ok {
			ref.Name = v.Value
		}
		if v, ok := field(meta, "namespace"); ok {
			ref.Namespace = v.Value
		}
	}
	return strings.TrimSpace(ref.String())
}
