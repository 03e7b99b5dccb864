package foreign

import (
	"strings"
	"testing"

	"github.com/latch-cni/latch/shared/attach"
)

func TestIsTheirs(t *testing.T) {
	programs := map[uint32]bool{7: true}
	tests := []struct {
		name string
		o    attach.Other
		want bool
	}{
		{"program is pinned by the agent", attach.Other{Priority: 1, Handle: 1, ProgID: 7, Name: "x"}, true},
		{"pins are lost, the name is left", attach.Other{Priority: 1, Handle: 1, ProgID: 8, Name: "handle_egress"}, true},
		{"somebody else's in its place", attach.Other{Priority: 1, Handle: 1, ProgID: 8, Name: "bwm"}, false},
		{"its name in another place", attach.Other{Priority: 2, Handle: 1, ProgID: 8, Name: "handle_egress"}, false},
		{"its program under another handle", attach.Other{Priority: 1, Handle: 2, ProgID: 7, Name: "handle_egress"}, false},
	}
	for _, tt := range tests {
		if got := isTheirs(tt.o, programs); got != tt.want {
			t.Errorf("%s: %v", tt.name, got)
		}
	}
}

func TestRefuseNamesWhatIsThere(t *testing.T) {
	if err := Refuse(Agent{Pins: "/sys/fs/bpf/globals/aws"}); err != nil {
		t.Errorf("pins alone judge no packet: %v", err)
	}
	a := Agent{Pins: "/sys/fs/bpf/globals/aws"}
	for _, name := range []string{"eni1", "eni1", "eni2", "vlan3", "eni4", "eni5"} {
		a.Filters = append(a.Filters, Filter{Interface: name})
	}
	err := Refuse(a)
	for _, want := range []string{AgentName, "eni1, eni2, vlan3 and 2 more", "/sys/fs/bpf/globals/aws", "--take-over"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want %q in %v", want, err)
		}
	}
}
