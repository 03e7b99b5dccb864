package bpf_test

import (
	"os"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/cilium/ebpf/btf"

	"github.com/latch-cni/latch/bpf"
)

// Every struct that C and Go share has its members at the same places.
func TestLayouts(t *testing.T) {
	spec, err := btf.LoadSpec("latch_bpfel.o")
	if err != nil {
		t.Fatal(err)
	}
	for name, v := range map[string]any{
		"pod_state": bpf.PodState{}, "slot": bpf.Slot{}, "rule_key4": bpf.RuleKey4{}, "rule_key6": bpf.RuleKey6{},
		"rule_val": bpf.RuleVal{}, "breakpoint": bpf.Breakpoint{}, "port_block": bpf.PortBlock{},
		"flow_key4": bpf.FlowKey4{}, "flow_key6": bpf.FlowKey6{}, "flow": bpf.Flow{}, "frag_key": bpf.FragKey{},
		"frag": bpf.Frag{}, "share": bpf.Share{}, "node": bpf.Node{}, "node_addr": bpf.NodeAddr{}, "counter_key": bpf.CounterKey{}, "event": bpf.Event{},
		"table_count": bpf.TableCount{}, "table_end": bpf.TableEnd{},
	} {
		var c *btf.Struct
		if err := spec.TypeByName(name, &c); err != nil {
			t.Errorf("struct %s: %v", name, err)
			continue
		}
		goType := reflect.TypeOf(v)
		if goType.Size() != uintptr(c.Size) {
			t.Errorf("struct %s: C has %d bytes, Go has %d", name, c.Size, goType.Size())
		}
		end := uint32(0)
		for _, m := range c.Members {
			field, ok := goType.FieldByNameFunc(func(f string) bool {
				return strings.EqualFold(f, strings.ReplaceAll(m.Name, "_", ""))
			})
			if !ok || uint32(field.Offset) != m.Offset.Bytes() {
				t.Errorf("struct %s: member %s is at %d in C, at %d in Go (found: %v)", name, m.Name, m.Offset.Bytes(), field.Offset, ok)
			}
			if m.Offset.Bytes() != end {
				t.Errorf("struct %s: hole before %s", name, m.Name)
			}
			size, err := btf.Sizeof(m.Type)
			if err != nil {
				t.Fatal(err)
			}
			end = m.Offset.Bytes() + uint32(size)
		}
		if end != c.Size {
			t.Errorf("struct %s: hole at the end", name)
		}
	}
}

// Every constant that Go repeats is that of types.h.
func TestConstants(t *testing.T) {
	header, err := os.ReadFile("types.h")
	if err != nil {
		t.Fatal(err)
	}
	defined := map[string]uint64{}
	for _, m := range regexp.MustCompile(`(?m)^#define (\w+) (0x[0-9a-f]+|\d+)\b`).FindAllStringSubmatch(string(header), -1) {
		n, err := strconv.ParseUint(m[2], 0, 64)
		if err != nil {
			t.Fatal(err)
		}
		defined[m[1]] = n
	}
	spec, err := btf.LoadSpec("latch_bpfel.o")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"latch_dir", "latch_reason", "latch_timeout", "flow_state", "latch_table", "latch_end"} {
		var e *btf.Enum
		if err := spec.TypeByName(name, &e); err != nil {
			t.Fatal(err)
		}
		for _, v := range e.Values {
			defined[v.Name] = v.Value
		}
	}
	repeated := map[string]uint64{
		"LATCH_LAYOUT": bpf.Layout, "MAX_SLOTS": bpf.MaxSlots, "POD_STATE_SIZE": bpf.PodStateSize, "MAX_COUNTERS": bpf.MaxCounters,
		"PORT_BLOCK": bpf.BlockSize, "MAX_PREFIX_LENS": bpf.MaxPrefixLens, "SLOT_DEFAULT_ALLOW": bpf.SlotDefaultAllow,
		"SLOT_DEFAULT_DENY": bpf.SlotDefaultDeny, "FIRST_SLOT": bpf.FirstSlot, "PORT_KEY_MAX": bpf.PortKeyMax,
		"DIR_INGRESS": bpf.Ingress, "DIR_EGRESS": bpf.Egress,
		"RES_RULE_MASK": bpf.ResRuleMask, "RES_ALLOW": bpf.ResAllow, "RES_SET": bpf.ResSet,
		"POD_F_ANTISPOOF": bpf.PodAntispoof, "SLOT_F_USED": bpf.SlotUsed, "SLOT_F_COMPLETE": bpf.SlotComplete,
		"FLOW_F_EXEMPT": bpf.FlowExempt, "FLOW_F_FIN_LOCAL": bpf.FlowFinLocal, "FLOW_F_FIN_REMOTE": bpf.FlowFinRemote,
		"FLOW_F_CUT": bpf.FlowCut, "FLOW_F_GUESSED": bpf.FlowGuessed,
		"NODE_F_ADDRESS_IS_NODE": bpf.NodeAddressIsNode, "NODE_F_JUDGE_TO_NODE": bpf.NodeJudgeToNode,
		"NODE_F_EVENTS_DENY": bpf.NodeEventsDeny, "NODE_F_EVENTS_ALLOW": bpf.NodeEventsAllow,
		"COUNTER_LOST_EVENTS": bpf.CounterLostEvents, "COUNTER_NO_SLOT": bpf.CounterNoSlot,
		"FLOW_NEW": bpf.FlowNew, "FLOW_ESTABLISHED": bpf.FlowEstablished, "FLOW_CLOSING": bpf.FlowClosing,
		"TIMEOUT_TCP_SYN": bpf.TimeoutTCPSyn, "TIMEOUT_TCP_ESTABLISHED": bpf.TimeoutTCPEstablished,
		"TIMEOUT_TCP_CLOSING": bpf.TimeoutTCPClosing, "TIMEOUT_UDP": bpf.TimeoutUDP, "TIMEOUT_UDP_ANSWERED": bpf.TimeoutUDPAnswered,
		"TIMEOUT_OTHER": bpf.TimeoutOther, "TIMEOUT_FRAGMENT": bpf.TimeoutFragment, "TIMEOUT_GRACE": bpf.TimeoutGrace,
		"__TIMEOUT_MAX": uint64(len(bpf.Node{}.Timeouts)), "STAMP_SHIFT": 24,
		"TABLE_FLOWS4": uint64(bpf.TableFlows4), "TABLE_FLOWS6": uint64(bpf.TableFlows6), "TABLE_SPILL4": uint64(bpf.TableSpill4),
		"TABLE_SPILL6": uint64(bpf.TableSpill6), "TABLE_FRAGS": uint64(bpf.TableFrags), "TABLE_FRAG_SPILL": uint64(bpf.TableFragSpill),
		"__TABLE_MAX": uint64(len(bpf.Tables())), "END_EXPIRED": uint64(bpf.EndExpired), "END_CLOSED": uint64(bpf.EndClosed),
		"END_CUT": uint64(bpf.EndCut), "END_CROWDED": uint64(bpf.EndCrowded), "END_POD_GONE": uint64(bpf.EndPodGone),
		"__END_MAX": uint64(len(bpf.Ends())),
	}
	for r := bpf.Reason(0); !strings.HasPrefix(r.String(), "reason-"); r++ {
		repeated["REASON_"+strings.ToUpper(strings.ReplaceAll(r.String(), "-", "_"))] = uint64(r)
		repeated["__REASON_MAX"] = uint64(r) + 1
	}
	for name, n := range repeated {
		if c, ok := defined[name]; !ok || c != n {
			t.Errorf("%s is %d in C (found: %v), %d in Go", name, c, ok, n)
		}
	}
	for name := range defined {
		if _, ok := repeated[name]; !ok {
			t.Errorf("%s is not repeated in Go", name)
		}
	}
}
