package regress

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/latch-cni/latch/shared/testenv"
)

// The rules of R6. m1 and m2 are two policies that select the same pods.
var (
	r6m1 = []string{
		"E 0.0.0.0/0 except 10.0.0.0/8,169.254.0.0/16",
		"E 10.0.0.0/7 tcp/443",
		"E 10.96.0.10/32 udp/53",
		"E 10.1.0.0/16 tcp/80",
		"E 10.1.2.0/24 except 10.1.2.128/25 tcp/8080",
		"E 0.0.0.0/0 udp/123",
		"E 169.254.170.23/32 tcp/80",
	}
	r6m2 = []string{
		"E 10.1.2.200/32 tcp/8080",
		"E 172.16.0.0/12 except 172.16.5.0/24 tcp/22",
	}
)

const (
	r6Table = `
		A > 198.51.100.7 tcp/9999 icmp : allow
		A > 10.9.9.9 tcp/443 : allow
		A > 10.9.9.9 tcp/444 icmp : deny
		A > 11.1.1.1 tcp/444 : allow
		A > 10.96.0.10 udp/53 tcp/443 : allow
		A > 10.96.0.11 udp/53 : deny
		A > 10.1.7.7 tcp/80,443 : allow
		A > 10.1.2.5 tcp/8080,80,443 udp/123 : allow
		A > 10.1.2.200 tcp/8080 : allow
		A > 10.1.2.201 tcp/8080 : deny
		A > 10.1.2.201 tcp/80 : allow
		A > 169.254.169.254 tcp/80 : deny
		A > 169.254.169.254 udp/123 : allow
		A > 169.254.170.23 tcp/80 : allow
		A > 172.16.5.9 tcp/22 : allow`
	r6WithoutFirst = `
		A > 198.51.100.7 tcp/9999 : deny
		A > 11.1.1.1 tcp/444 : deny
		A > 11.1.1.1 tcp/443 : allow
		A > 172.16.5.9 tcp/22 : deny
		A > 172.16.6.9 tcp/22 : allow
		A > 198.51.100.7 udp/123 : allow
		A > 10.9.9.9 udp/123 : allow
		A > 172.16.5.9 udp/123 : allow
		A > 10.1.2.5 tcp/8080,80,443 : allow
		A > 10.1.2.201 tcp/8080 : deny
		A > 169.254.170.23 tcp/80 : allow`
	// What the deletion of the first rule changes.
	r6First, r6NoFirst = "A > 198.51.100.7 tcp/9999 : allow", "A > 198.51.100.7 tcp/9999 : deny"
)

// R6: blocks, exceptions and their union. An exception takes away from its own rule only. In IPv6 the
// same blocks lie in the last 32 bits of one /96.
func TestR6BlocksExceptionsAndUnion(t *testing.T) {
	families := []struct {
		name string
		in   func(string) string
	}{
		{"IPv4", func(s string) string { return s }},
		{"IPv6", in6},
	}
	for _, f := range families {
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			g := newGround(t, options{})
			write := func(m1, m2 []string, split bool) {
				pes := []string{"t1/m1 app=a E\n" + strings.Join(m1, "\n"), "t1/m2 app=a E\n" + strings.Join(m2, "\n")}
				if split {
					cut := rand.IntN(len(m1) + 1)
					pes[0] = "t1/m1#1 app=a E\n" + strings.Join(m1[:cut], "\n")
					pes = append(pes, "t1/m1#2 app=a E\n"+strings.Join(m1[cut:], "\n"))
				}
				var all [][]byte
				for _, pe := range pes {
					all = append(all, g.policy(f.in(pe)).manifest())
				}
				g.write("policies.yaml", documents(all...))
			}
			a := g.pod("A", testenv.PodA)
			a.publish(nil)
			write(r6m1, r6m2, false)
			a.add()
			g.expect("as written", f.in(r6Table))
			write(r6m1[1:], r6m2, false)
			g.becomes("first rule deleted", f.in(r6NoFirst))
			g.expect("first rule deleted", f.in(r6WithoutFirst))

			rounds := 50
			if testing.Short() {
				rounds = 3
			}
			for round := range rounds {
				m1, m2 := shuffled(r6m1), shuffled(r6m2)
				split := round%2 == 1
				what := fmt.Sprintf("round %d, split %v, order %q %q", round, split, m1, m2)
				write(m1, m2, split)
				g.becomes(what, f.in(r6First))
				g.expect(what, f.in(r6Table))
				write(shuffled(r6m1[1:]), m2, split)
				g.becomes(what+", first rule deleted", f.in(r6NoFirst))
				g.expect(what+", first rule deleted", f.in(r6WithoutFirst))
			}
			g.healthy()
		})
	}
}

func shuffled(in []string) []string {
	out := append([]string(nil), in...)
	rand.Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] })
	return out
}
