package apis

import (
	"cmp"
	"strconv"
	"strings"
)

// Problem says what is wrong with an object or a file. It is for people: status, logs, events.
type Problem struct {
	Object  string // Ref.String(), or empty when the document could not be read that far
	File    string // of a policy directory, else empty
	Line    int    // 1-based, 0 when not known
	Field   string // path like spec.ingress[2].ports[0].port, or empty
	Message string
}

// String returns the problem in one line, as compilers do.
func (p Problem) String() string {
	var b strings.Builder
	part := func(s string) {
		if s == "" {
			return
		}
		if b.Len() > 0 {
			b.WriteString(": ")
		}
		b.WriteString(s)
	}
	at := p.File
	if p.Line > 0 {
		at += ":" + strconv.Itoa(p.Line)
	}
	part(at)
	part(p.Object)
	part(p.Field)
	part(p.Message)
	return b.String()
}

// Compare orders problems by file, line, object, field and message.
func (p Problem) Compare(o Problem) int {
	return cmp.Or(
		cmp.Compare(p.File, o.File),
		cmp.Compare(p.Line, o.Line),
		cmp.Compare(p.Object, o.Object),
		cmp.Compare(p.Field, o.Field),
		cmp.Compare(p.Message, o.Message),
	)
}
