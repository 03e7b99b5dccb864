package bpf

import "testing"

func TestLoad(t *testing.T) {
	o, err := Load(Sizes{})
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range []interface{ String() string }{o.FromPod, o.ToPod} {
		t.Log(p)
	}
	i, _ := o.FromPod.Info()
	n, _ := i.VerifiedInstructions()
	t.Log(n)
	i, _ = o.ToPod.Info()
	n, _ = i.VerifiedInstructions()
	t.Log(n)
	if err := o.Close(); err != nil {
		t.Fatal(err)
	}
}
