package policy

import (
	"math/rand/v2"
	"testing"
)

// bytesChooser makes choices of a fuzzer's bytes. When they are used up it chooses 0.
type bytesChooser struct{ data []byte }

func (b *bytesChooser) IntN(n int) int {
	if len(b.data) == 0 {
		return 0
	}
	v := int(b.data[0]) % n
	b.data = b.data[1:]
	return v
}

// FuzzCompile proves for any input that the compiler does not panic, means what the API says, and
// does not depend on order. Run it with -fuzzminimizetime 10x: most inputs do not get simpler, and
// the default spends a minute on each to find that out.
func FuzzCompile(f *testing.F) {
	f.Add([]byte{})
	r := rand.New(rand.NewPCG(seed(f), 0))
	for range 20 {
		data := make([]byte, 64+r.IntN(400))
		for i := range data {
			data[i] = byte(r.Uint32())
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		in := chooseInput(&bytesChooser{data})
		if !checkInput(t, rand.New(rand.NewPCG(1, 2)), in, 200) {
			t.Fatalf("input %+v", in)
		}
	})
}
