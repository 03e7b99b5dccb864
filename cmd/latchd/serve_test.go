package main

import (
	"testing"

	"github.com/latch-cni/latch/cmd/latchd/apis"
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
