package manifest

import (
	"bytes"
)

// section is a part of a file between separator lines. It is parsed alone, so that a syntax error ends
// with the section it is in.
type section struct {
	line int // of the file on which data starts, 1-based
	data []byte
}

// lines counts the lines up to the last one with text.
func (s section) lines() int {
	return 1 + bytes.Count(bytes.TrimRight(s.data, " \t\r\n"), []byte("\n"))
}

// split cuts a file at lines that start with "---". YAML allows such a line nowhere else, and text after
// the dashes belongs to the new document.
func split(data []byte) []section {
	data = bytes.TrimPrefix(data, []byte("\xef\xbb\xbf"))
	var out []section
	start, startLine := 0, 1
	add := func(end int) {
		if s := data[start:end]; !isBlank(s) {
			out = append(out, section{startLine, s})
		}
	}
	line := 1
	for pos := 0; pos < len(data); line++ {
		end := len(data)
		if i := bytes.IndexByte(data[pos:], '\n'); i >= 0 {
			end = pos + i + 1
		}
		if isSeparator(data[pos:end]) {
			add(pos)
			start, startLine = pos+len("---"), line
		}
		pos = end
	}
	add(len(data))
	return out
}

func isSeparator(line []byte) bool {
	rest, ok := bytes.CutPrefix(line, []byte("---"))
	return ok && (len(rest) == 0 || bytes.ContainsRune([]byte(" \t\r\n"), rune(rest[0])))
}

// isBlank says whether a section holds comments, directives and empty lines only.
func isBlank(data []byte) bool {
	for line := range bytes.Lines(data) {
		trimmed := bytes.TrimSpace(line)
		if len(trimmed) == 0 || trimmed[0] == '#' || line[0] == '%' {
			continue
		}
		return false
	}
	return true
}
