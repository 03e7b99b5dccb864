package manifest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// maxDepth bounds the nesting of a document. No object of ours comes near.
const maxDepth = 200

// lineError is an error at a line of the text that was parsed.
type lineError struct {
	line int
	err  error
}

func (e *lineError) Error() string { return fmt.Sprintf("line %d: %v", e.line, e.err) }
func (e *lineError) Unwrap() error { return e.err }

var yamlPrefix = regexp.MustCompile(`^yaml: (?:line (\d+): )?`)

// locate returns line and message of a parse error. The YAML library tells the line in its text only,
// and counts from 0 in errors of its parser, other than in those of its scanner.
func locate(err error) (int, string) {
	var at *lineError
	if errors.As(err, &at) {
		return at.line, at.err.Error()
	}
	text := err.Error()
	m := yamlPrefix.FindStringSubmatch(text)
	if m == nil {
		return 0, text
	}
	line, _ := strconv.Atoi(m[1]) // 0 when the library did not tell
	message := strings.TrimPrefix(text, m[0])
	if strings.HasPrefix(message, "did not find expected") {
		line++
	}
	return line, message
}

// parse reads the documents of a section. On an error it also returns those before it. JSON is tried
// first where the text looks like it: it is stricter about where a value ends, and YAML refuses tabs.
func parse(name string, data []byte) ([]*yaml.Node, error) {
	isJSON := strings.HasSuffix(name, ".json")
	if first := bytes.TrimLeft(data, " \t\r\n"); isJSON || len(first) > 0 && (first[0] == '{' || first[0] == '[') {
		nodes, err := parseJSON(data)
		if err == nil || isJSON {
			return nodes, err
		}
	}
	return parseYAML(data)
}

func parseYAML(data []byte) (nodes []*yaml.Node, err error) {
	defer func() {
		if r := recover(); r != nil { // a policy file must not be able to end the watcher
			err = fmt.Errorf("yaml: %v", r)
		}
	}()
	dec := yaml.NewDecoder(bytes.NewReader(data))
	for {
		n := new(yaml.Node)
		if err := dec.Decode(n); errors.Is(err, io.EOF) {
			return nodes, nil
		} else if err != nil {
			return nodes, err
		}
		nodes = append(nodes, n)
	}
}

// parseJSON reads a stream of JSON values into the same tree that YAML gives.
func parseJSON(data []byte) ([]*yaml.Node, error) {
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber()
	p := jsonParser{dec: dec, data: data, line: 1}
	var nodes []*yaml.Node
	for {
		n, err := p.value(0)
		if errors.Is(err, io.EOF) {
			return nodes, nil
		}
		if err != nil {
			return nodes, p.at(err)
		}
		nodes = append(nodes, n)
	}
}

type jsonParser struct {
	dec  *json.Decoder
	data []byte
	pos  int // up to here lines are counted
	line int
}

// lineAt counts lines up to an offset. Offsets only rise.
func (p *jsonParser) lineAt(offset int) int {
	if offset = min(offset, len(p.data)); offset > p.pos {
		p.line += bytes.Count(p.data[p.pos:offset], []byte("\n"))
		p.pos = offset
	}
	return p.line
}

func (p *jsonParser) at(err error) error {
	offset := p.dec.InputOffset()
	var syntax *json.SyntaxError
	if errors.As(err, &syntax) {
		offset = syntax.Offset
	}
	if errors.Is(err, io.ErrUnexpectedEOF) {
		offset, err = int64(len(p.data)), errors.New("unexpected end of the text")
	}
	return &lineError{p.lineAt(int(offset)), err}
}

func (p *jsonParser) value(depth int) (*yaml.Node, error) {
	token, err := p.dec.Token()
	if err != nil {
		return nil, err
	}
	return p.finish(token, depth)
}

// finish makes the node that starts with a token.
func (p *jsonParser) finish(token json.Token, depth int) (*yaml.Node, error) {
	n := &yaml.Node{Kind: yaml.ScalarNode, Line: p.lineAt(int(p.dec.InputOffset()))}
	if depth > maxDepth {
		return nil, errors.New("nested too deeply")
	}
	switch v := token.(type) {
	case nil:
		n.Tag, n.Value = "!!null", "null"
	case bool:
		n.Tag, n.Value = "!!bool", strconv.FormatBool(v)
	case string:
		n.Tag, n.Value, n.Style = "!!str", v, yaml.DoubleQuotedStyle
	case json.Number:
		n.Tag, n.Value = "!!float", v.String()
		if _, err := strconv.ParseInt(n.Value, 10, 64); err == nil {
			n.Tag = "!!int"
		}
	case json.Delim:
		n.Kind, n.Tag = yaml.MappingNode, "!!map"
		if v == '[' {
			n.Kind, n.Tag = yaml.SequenceNode, "!!seq"
		}
		return n, p.fill(n, depth)
	}
	return n, nil
}

// fill reads keys and values, or elements, up to and with the closing delimiter.
func (p *jsonParser) fill(n *yaml.Node, depth int) error {
	for {
		token, err := p.dec.Token()
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		if err != nil {
			return err
		}
		if d, ok := token.(json.Delim); ok && (d == '}' || d == ']') {
			return nil
		}
		c, err := p.finish(token, depth+1)
		if err != nil {
			return err
		}
		n.Content = append(n.Content, c)
	}
}

// shift moves the lines of a tree from those of its section to those of its file.
func shift(n *yaml.Node, by int) {
	if by == 0 {
		return
	}
	n.Line += by
	for _, c := range n.Content { // an alias does not own its target, which is in the tree itself
		shift(c, by)
	}
}
