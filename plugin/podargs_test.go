package plugin

import (
	"errors"
	"strings"
	"testing"

	"github.com/containernetworking/cni/pkg/types"
	"github.com/google/go-cmp/cmp"
)

func TestParsePodArgs(t *testing.T) {
	full := pod{Namespace: "shop", Name: "web-1.a", UID: "11-22", SandboxID: "abc"}
	cases := []struct {
		name string
		args string
		want pod
		err  string // "" = none
	}{
		{"as containerd sends them",
			"IgnoreUnknown=1;K8S_POD_NAMESPACE=shop;K8S_POD_NAME=web-1.a;K8S_POD_INFRA_CONTAINER_ID=abc;K8S_POD_UID=11-22", full, ""},
		{"in another order",
			"K8S_POD_UID=11-22;K8S_POD_INFRA_CONTAINER_ID=abc;K8S_POD_NAME=web-1.a;IgnoreUnknown=true;K8S_POD_NAMESPACE=shop", full, ""},
		{"unknown keys, IgnoreUnknown not set", "K8S_POD_NAMESPACE=shop;X=y;K8S_POD_NAME=web", pod{Namespace: "shop", Name: "web"}, ""},
		{"semicolon at the end", "K8S_POD_NAMESPACE=shop;K8S_POD_NAME=web;", pod{Namespace: "shop", Name: "web"}, ""},
		{"unknown keys forbidden", "K8S_POD_NAMESPACE=shop;X=y;K8S_POD_NAME=web;IgnoreUnknown=0", pod{}, "unknown args"},
		{"nothing", "", pod{}, "CNI_ARGS lacks K8S_POD_NAMESPACE and K8S_POD_NAME"},
		{"no name", "K8S_POD_NAMESPACE=shop", pod{}, "CNI_ARGS lacks K8S_POD_NAME"},
		{"empty namespace", "K8S_POD_NAMESPACE=;K8S_POD_NAME=web", pod{}, "CNI_ARGS lacks K8S_POD_NAMESPACE"},
		{"not pairs", "K8S_POD_NAME", pod{}, "invalid pair"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			got, err := parsePodArgs(c.args)
			if c.err == "" && err != nil {
				t.Fatal(err)
			}
			if c.err != "" {
				wantCode(t, err, types.ErrInvalidEnvironmentVariables, c.err)
				return
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("pod (-want +got):\n%s", diff)
			}
		})
	}
}

// wantCode stops the test unless err is a CNI error with the code whose text contains every part.
func wantCode(t *testing.T, err error, code uint, parts ...string) {
	t.Helper()
	var cniErr *types.Error
	if !errors.As(err, &cniErr) {
		t.Fatalf("error %v (%T) is no CNI error, want code %d", err, err, code)
	}
	if cniErr.Code != code {
		t.Fatalf("error %q has code %d, want %d", cniErr, cniErr.Code, code)
	}
	for _, part := range parts {
		if !strings.Contains(cniErr.Error(), part) {
			t.Errorf("error %q does not say %q", cniErr, part)
		}
	}
}
