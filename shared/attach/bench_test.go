package attach

import (
	"testing"

	"github.com/latch-cni/latch/shared/testenv"
)

// What ADD pays for both sides, and what the audit pays to look.
func BenchmarkAttach(b *testing.B) {
	testenv.RequireRoot(b)
	for _, m := range []Mode{ModeClsact, ModeTCX} {
		b.Run(string(m), func(b *testing.B) {
			g := newGround(b)
			p := newProgram(b, "p", next)
			for b.Loop() {
				for _, s := range Sides {
					g.attach(s, p.Program, m)
				}
				b.StopTimer()
				for _, s := range Sides {
					g.detach(s)
				}
				b.StartTimer()
			}
		})
		b.Run(string(m)+" again", func(b *testing.B) {
			g := newGround(b)
			p := newProgram(b, "p", next)
			for b.Loop() {
				for _, s := range Sides {
					g.attach(s, p.Program, m)
				}
			}
		})
		b.Run("query "+string(m), func(b *testing.B) {
			g := newGround(b)
			p := newProgram(b, "p", next)
			g.attach(ToPod, p.Program, m)
			for b.Loop() {
				g.query(ToPod, p.Program)
			}
		})
	}
}
