package install

import (
	"bytes"
	"encoding/json"
	"errors"
	"maps"
)

// span is where one plugin lies in the text of a conflist.
type span struct {
	gap, start, end int64 // gap is where the space before it begins
	raw             json.RawMessage
}

type spans []span

func (s span) isOurs() bool {
	var plugin struct {
		Type string `json:"type"`
	}
	return json.Unmarshal(s.raw, &plugin) == nil && plugin.Type == pluginType
}

// keys returns what an entry says.
func (s span) keys() keys {
	var k keys
	_ = json.Unmarshal(s.raw, &k) // no object says nothing
	return k
}

// isEntry tells whether it is this entry, whatever settings it has besides.
func (s span) isEntry(e entry) bool {
	own := s.keys()
	maps.DeleteFunc(own, func(key string, _ json.RawMessage) bool { return !isOwn(key) })
	var want keys
	return json.Unmarshal(e.json(), &want) == nil && maps.EqualFunc(own, want, func(a, b json.RawMessage) bool { return bytes.Equal(a, b) })
}

// settings returns those of our entries which are not ours alone to make; of two for one key the last.
func (l spans) settings() keys {
	all := keys{}
	for _, s := range l {
		if s.isOurs() {
			maps.Copy(all, s.keys())
		}
	}
	maps.DeleteFunc(all, func(key string, _ json.RawMessage) bool { return isOwn(key) })
	return all
}

func (l spans) ours() int {
	n := 0
	for _, s := range l {
		if s.isOurs() {
			n++
		}
	}
	return n
}

func (l spans) indexOfOurs() int {
	for i, s := range l {
		if s.isOurs() {
			return i
		}
	}
	return -1
}

// findPlugins finds the plugins in the text of a conflist.
func findPlugins(conflist []byte) (spans, error) {
	d := json.NewDecoder(bytes.NewReader(conflist))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return nil, errors.New("it is not an object")
	}
	var list spans
	found := false
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return nil, err
		}
		if key != "plugins" {
			var skip json.RawMessage
			if err := d.Decode(&skip); err != nil {
				return nil, err
			}
			continue
		}
		if found {
			return nil, errors.New("it has the key plugins twice")
		}
		found = true
		if list, err = readPlugins(d, conflist); err != nil {
			return nil, err
		}
	}
	if !found {
		return nil, errors.New("it has no plugins")
	}
	return list, nil
}

func readPlugins(d *json.Decoder, text []byte) (spans, error) {
	if t, err := d.Token(); err != nil || t != json.Delim('[') {
		return nil, errors.New("plugins is not a list")
	}
	var list spans
	for gap := d.InputOffset(); d.More(); gap = d.InputOffset() {
		if i := d.InputOffset(); text[i] == ',' {
			gap = i + 1
		}
		var raw json.RawMessage
		if err := d.Decode(&raw); err != nil {
			return nil, err
		}
		end := d.InputOffset()
		list = append(list, span{gap: gap, start: end - int64(len(raw)), end: end, raw: raw})
	}
	_, err := d.Token()
	return list, err
}
