package plugin

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/latch-cni/latch/shared/state"
)

func TestStaleAttachments(t *testing.T) {
	all := []state.Attachment{
		{Network: "pods", ContainerID: "a", IfName: "eth0"},
		{Network: "pods", ContainerID: "a", IfName: "net1"},
		{Network: "storage", ContainerID: "a", IfName: "net2"},
		{Network: "pods", ContainerID: "b", IfName: "eth0"},
	}
	cases := []struct {
		name    string
		network string
		valid   []attachmentID
		want    []attachmentID
	}{
		{"all valid", "pods", []attachmentID{{"a", "eth0"}, {"a", "net1"}, {"b", "eth0"}}, nil},
		{"one interface of a pod is stale", "pods", []attachmentID{{"a", "eth0"}, {"b", "eth0"}, {"c", "eth0"}}, []attachmentID{{"a", "net1"}}},
		{"none valid, other networks are left alone", "pods", nil, []attachmentID{{"a", "eth0"}, {"a", "net1"}, {"b", "eth0"}}},
		{"unknown network", "other", nil, nil},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			if diff := cmp.Diff(c.want, staleAttachments(all, c.network, c.valid)); diff != "" {
				t.Errorf("stale (-want +got):\n%s", diff)
			}
		})
	}
}
