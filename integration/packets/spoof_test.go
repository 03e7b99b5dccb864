package packets

import (
	"testing"

	"github.com/latch-cni/latch/shared/testenv"
)

// With antiSpoof a pod sends from its own addresses only; without it, from any. It holds whatever policy
// says, outlives a change of policy, and does not stop what the link needs.
func TestAntiSpoof(t *testing.T) {
	g := newGround(t, options{both: true, mute: true, bridge: true})
	guarded := g.sandbox(g.Pod(t, testenv.PodA))
	guarded.attachment.Interfaces[0].AntiSpoof = true
	guarded.set("E", "E "+v4.web, "E "+v6.web)
	g.ext.via = guarded.mac
	check := func(t *testing.T, f family) {
		link := shot{family: f, src: f.a, dst: f.web, sport: 1}
		for what, src := range map[string]string{"another pod's": f.b, "the node's": f.node, "the peer's": f.web, "nobody's": map[int]string{32: "0.0.0.0", 128: "::"}[f.bits]} {
			g.want("deny spoof", what+" address, UDP", guarded.end, g.ext, datagram(at(src, 5000), at(f.web, 53), 20))
			g.want("deny spoof", what+" address, TCP", guarded.end, g.ext, testenv.TCP(at(src, 5000), at(f.web, 53), syn))
			g.want("deny spoof", what+" address, echo", guarded.end, g.ext, testenv.Ping(src, f.web, false, 1, 1))
			g.want("deny spoof", what+" address, fragment", guarded.end, g.ext, f.fragment(datagram(at(src, 5000), at(f.web, 53), 100), 7, 64, false, make([]byte, 40)))
		}
		g.want("allow", "its own address", guarded.end, g.ext, datagram(at(f.a, 5000), at(f.web, 53), 20))
		g.want("allow", "what it is sent has other addresses", g.ext, guarded.end, datagram(at(f.web, 53), at(f.a, 5000), 20))
		if f.bits == 128 {
			g.want("allow", "duplicate address detection", guarded.end, g.ext, link.from("", "::").to("", "ff02::1:ff00:11").discovery(135, 255))
			g.want("allow", "router solicitation", guarded.end, g.ext, link.from("", "fe80::11").to("", "ff02::2").discovery(133, 255))
		}
	}
	each(t, g, check)
	t.Run("after a change of policy", func(t *testing.T) {
		guarded.set("") // another slot's rules, the same binding
		each(t, g, check)
	})
	open := g.pod(testenv.PodB, "E", "E "+v4.web, "E "+v6.web)
	t.Run("without antiSpoof", func(t *testing.T) {
		each(t, g, func(t *testing.T, f family) {
			g.want("allow", "another pod's address", open.end, g.ext, datagram(at(f.c, 5000), at(f.web, 53), 20))
		})
	})
}
