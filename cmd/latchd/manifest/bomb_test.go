package manifest

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// Merged keys that are there already add nothing to the output, but cost time.
func TestMergesCannotGrowWithoutEnd(t *testing.T) {
	var b strings.Builder
	b.WriteString("apiVersion: v1\nkind: Pod\nx0: &x0 {k: v}\n")
	for i := 1; i <= 9; i++ {
		fmt.Fprintf(&b, "x%d: &x%d\n  k: v\n  <<: [%s]\n", i, i, strings.TrimSuffix(strings.Repeat(fmt.Sprintf("*x%d,", i-1), 10), ","))
	}
	b.WriteString("metadata: {name: p, <<: *x9}\n")
	done := make(chan Content, 1)
	go func() { done <- Decode("bomb.yaml", []byte(b.String())) }()
	select {
	case c := <-done:
		if len(c.Problems) != 1 {
			t.Errorf("got %+v, want one problem", c)
		}
	case <-time.After(10 * time.Second):
		t.Fatal("a file of 1 kB is not decoded after 10 s")
	}
}
