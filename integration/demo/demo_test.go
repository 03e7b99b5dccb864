package main

import (
	"bytes"
	"testing"
	"time"

	"github.com/latch-cni/latch/shared/testenv"
)

func TestMain(m *testing.M) { testenv.Main(m) }

// What a stranger sees first works, with the sample that is in the tree.
func TestDemo(t *testing.T) {
	testenv.RequireRoot(t)
	var out bytes.Buffer
	d := &demo{out: &printer{to: &out}}
	if err := d.play(t.Context(), "", "../../conf/samples/shop.yaml", false); err != nil {
		t.Fatalf("%v\n%s", err, &out)
	}
	if code := d.out.verdict(time.Second); code != 0 || d.out.chapters != 7 {
		t.Errorf("exit code %d after %d chapters:\n%s", code, d.out.chapters, &out)
	}
}
