package attach

import (
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

const bpfKind = "bpf"

func kindBPF() *nl.RtAttr { return nl.NewRtAttr(nl.TCA_KIND, nl.ZeroTerminated(bpfKind)) }

// below stands for all filters of a hook.
func below(ifindex int, h hook) *nl.TcMsg {
	return &nl.TcMsg{Family: nl.FAMILY_ALL, Ifindex: int32(ifindex), Parent: h.parent}
}

// place stands for one filter of a hook, for packets of every protocol.
func place(ifindex int, h hook, priority uint16, handle uint32) *nl.TcMsg {
	m := below(ifindex, h)
	m.Handle, m.Info = handle, netlink.MakeHandle(priority, nl.Swap16(unix.ETH_P_ALL))
	return m
}

// parseFilter reads one entry of a list of filters. It reports false for what packets do not meet: the
// head of a priority, a table of u32, and a filter of another chain, which is entered by a jump only.
func parseFilter(m []byte) (f filter, runs bool, err error) {
	if len(m) < nl.SizeofTcMsg {
		return f, false, fmt.Errorf("entry of %d bytes", len(m))
	}
	attrs, err := nl.ParseRouteAttr(m[nl.SizeofTcMsg:])
	if err != nil {
		return f, false, err
	}
	msg := nl.DeserializeTcMsg(m)
	f.handle = msg.Handle
	f.priority, _ = netlink.MajorMinor(msg.Info)
	var kind string
	var options map[uint16][]byte
	for _, a := range attrs {
		switch a.Attr.Type {
		case nl.TCA_KIND:
			kind = unix.ByteSliceToString(a.Value)
		case nl.TCA_CHAIN:
			if nl.NativeEndian().Uint32(a.Value) != 0 {
				return f, false, nil
			}
		case nl.TCA_OPTIONS:
			if options, err = parseOptions(a.Value); err != nil {
				return f, false, err
			}
		}
	}
	f.what = fmt.Sprintf("filter %s at priority %d handle %#x", kind, f.priority, f.handle)
	switch kind {
	case bpfKind:
		if id := options[nl.TCA_BPF_ID]; len(id) == 4 {
			f.prog = ebpf.ProgramID(nl.NativeEndian().Uint32(id))
		}
		f.name = unix.ByteSliceToString(options[nl.TCA_BPF_NAME])
		f.ours = f.priority == priority && (f.handle == handles[0] || f.handle == handles[1])
		f.what += " " + f.name
	case "u32":
		return f, options[nl.TCA_U32_SEL] != nil, nil
	}
	return f, options != nil, nil
}

func parseOptions(b []byte) (map[uint16][]byte, error) {
	attrs, err := nl.ParseRouteAttr(b)
	options := make(map[uint16][]byte, len(attrs))
	for _, a := range attrs {
		options[a.Attr.Type] = a.Value
	}
	return options, err
}
