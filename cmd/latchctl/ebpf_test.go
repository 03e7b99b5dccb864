package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/latch-cni/latch/shared/testenv"
	"github.com/latch-cni/latch/shared/view"
)

// The words of aws-eks-na-cli lead from a pod to the content of its maps, as there.
func TestWordsOfThePresentTool(t *testing.T) {
	n := newNode(t)
	pod := testenv.PodA.Namespace + "/" + testenv.PodA.Name
	for _, test := range []struct {
		args []string
		want []string
	}{
		{[]string{"ebpf", "progs"}, []string{"Programs currently loaded :", "ID : ", "Name : to_pod"}},
		{[]string{"ebpf", "p"}, []string{"Name : from_pod"}},
		{[]string{"ebpf", "maps"}, []string{"Keysize", "rules_in4", "Pods : " + pod}},
		{[]string{"ebpf", "loaded-ebpfdata"}, []string{"PinPath:", "Pod Identifier :", "Pod : " + pod, "Prog ID:", "Map Name:  rules_in4", "Map ID:", "Direction : egress"}},
	} {
		if code, out, errOut := n.run(test.args...); code != 0 || !containsAll(out, test.want) {
			t.Errorf("%v: exit code %d, no %q in\n%s%s", test.args, code, test.want, out, errOut)
		}
		wantParses(t, n, "json", append(test.args, "-o", "json"))
	}
	_, out, _ := n.run("ebpf", "maps", "-o", "json")
	var found struct{ Maps []view.Map }
	if err := json.Unmarshal([]byte(out), &found); err != nil {
		t.Fatal(err)
	}
	for _, m := range found.Maps {
		want := map[string]string{"flows4": "no live flows", "counters": "REASON", "table_counts": "PUSHED OUT", "table_ends": "CROWDED", "slots": "RULES HASH", "pod_state": pod}[m.Name]
		lines := 0 // 0: any
		if m.Slot != nil {
			// The pod takes TCP/8080 from any IPv4 address: one rule with two lines, and nothing else.
			want, lines = "PEER", 1
			if m.Name == "rules_in4" || m.Name == "portsets" {
				want, lines = "TCP/8080", 3
			}
		}
		code, out, errOut := n.run("ebpf", "dump-maps", fmt.Sprint(m.ID))
		_, table, _ := strings.Cut(out, "\n\n")
		if got := strings.Count(table, "\n"); code != 0 || !strings.Contains(out, want) || lines > 0 && got != lines {
			t.Errorf("dump of %s: exit code %d, no %q, or not %d lines, in\n%s%s", m.Name, code, want, lines, out, errOut)
		}
	}
	for want, args := range map[int][]string{
		exitUnhealthy: {"ebpf", "dump-maps", "4294967295"},
		exitUsage:     {"ebpf", "dump-maps", "rules_in4"},
	} {
		if code, _, errOut := n.run(args...); code != want || errOut == "" {
			t.Errorf("%v: exit code %d, %s", args, code, errOut)
		}
	}
}

func containsAll(s string, all []string) bool {
	for _, want := range all {
		if !strings.Contains(s, want) {
			return false
		}
	}
	return true
}
