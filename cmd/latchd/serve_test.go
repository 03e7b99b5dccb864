package main

import (
	"bytes"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/latch-cni/latch/cmd/latchd/apis"
	"github.com/latch-cni/latch/cmd/latchd/policydir"
	"github.com/latch-cni/latch/cmd/latchd/world"
	"github.com/latch-cni/latch/shared/state"
)

func TestWhereOf(t *testing.T) {
	tests := []struct {
		problem apis.Problem
		want    string
	}{
		{apis.Problem{}, ""},
		{apis.Problem{Object: "Pod t1/x"}, "Pod t1/x"},
		{apis.Problem{File: "shop.yaml"}, "shop.yaml"},
		{apis.Problem{File: "shop.yaml", Line: 28}, "shop.yaml:28"},
		{apis.Problem{File: "shop.yaml", Object: "Pod t1/x"}, "shop.yaml Pod t1/x"},
		{apis.Problem{File: "shop.yaml", Line: 28, Object: "Pod t1/x"}, "shop.yaml:28 Pod t1/x"},
	}
	for _, tt := range tests {
		if have := whereOf(tt.problem); have != tt.want {
			t.Errorf("%+v: have %q, want %q", tt.problem, have, tt.want)
		}
	}
}

// What is wrong with an object is told with its file and line, also what is found only when it is used.
func TestProblemsNameFileAndLine(t *testing.T) {
	dir := t.TempDir()
	const endpoint = `
apiVersion: v1
kind: Namespace
metadata: {name: shop}
---
apiVersion: networking.k8s.aws/v1alpha1
kind: PolicyEndpoint
metadata: {namespace: shop, name: db-1}
spec:
  policyRef: {name: db, namespace: shop}
  podIsolation: [Ingress]
  ingress:
  - {cidr: 10.0.0.0/40}
  - {cidr: 10.0.0.0/8, ports: [{port: 70000}]}
`
	for _, name := range []string{"a.yaml", "z.yaml"} { // the first counts
		if err := os.WriteFile(filepath.Join(dir, name), []byte(endpoint), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	r := policydir.NewReader(dir)
	if _, err := r.Read(); err != nil {
		t.Fatal(err)
	}
	s := r.Snapshot()
	w := world.New(world.Options{})
	w.Replace(s.Objects)
	var got []string
	for _, p := range w.Problems() {
		got = append(got, placed(p, placesOf(s)).String())
	}
	want := []string{`a.yaml:13: PolicyEndpoint shop/db-1: spec.ingress[0].cidr: "10.0.0.0/40" is no block of addresses: the rule is left out`,
		"a.yaml:14: PolicyEndpoint shop/db-1: spec.ingress[1].ports[0].port: 70000 is not in 0..65535: the rule is left out"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("problems (-want +got):\n%s", diff)
	}
}

// What is wrong with a version that stays in force is not told with a line of the version that does not.
func TestProblemOfEarlierVersion(t *testing.T) {
	file := filepath.Join(t.TempDir(), "a.yaml")
	r := policydir.NewReader(filepath.Dir(file))
	var got []string
	for _, rule := range []string{"{cidr: 10.0.0.300}", `{cidr: 10.0.0.30, ports: [{port: "80"}]}`} {
		text := "apiVersion: networking.k8s.aws/v1alpha1\nkind: PolicyEndpoint\nmetadata: {name: db-1}\n" +
			"spec: {policyRef: {name: db}, podIsolation: [Ingress], ingress: [" + rule + "]}\n"
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := r.Read(); err != nil {
			t.Fatal(err)
		}
		s := r.Snapshot()
		w := world.New(world.Options{})
		w.Replace(s.Objects)
		got = nil
		for _, p := range w.Problems() {
			got = append(got, placed(p, placesOf(s)).String())
		}
	}
	want := []string{`a.yaml: PolicyEndpoint default/db-1: spec.ingress[0].cidr: "10.0.0.300" is no block of addresses: the rule is left out` +
		" (in an earlier version of the file, which is in force)"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("problems (-want +got):\n%s", diff)
	}
}

// Problems that come and go are told once, and the loop that tells them keeps its pace when every policy of a large
// cluster has one.
func TestTellProblems(t *testing.T) {
	const many = 60_000
	status := func(from int) (st state.Status) {
		st.UpdatedAt = time.Unix(1, 0)
		for i := range many {
			st.Problems = append(st.Problems, state.Problem{Object: fmt.Sprintf("NetworkPolicy t%d/p", from+i), Message: "has no endpoints objects"})
		}
		return st
	}
	var told bytes.Buffer
	d := &daemon{log: slog.New(slog.NewTextHandler(&told, nil))}
	began := time.Now()
	d.tell(status(1), status(0))
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("it took %v", took)
	}
	if lines := strings.Split(strings.TrimSpace(told.String()), "\n"); len(lines) != 2 ||
		!strings.Contains(lines[0], fmt.Sprintf(`msg=problem object="NetworkPolicy t%d/p"`, many)) || !strings.Contains(lines[1], `msg="problem is gone" object="NetworkPolicy t0/p"`) {
		t.Errorf("told %.500s", told.String())
	}
}
