package packets

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/latch-cni/latch/shared/testenv"
)

// Every hostile packet goes both ways, to and from a pod that no policy bears on and pods under two
// policies, through a node that hands on every frame as it is.
func TestHostile(t *testing.T) {
	open := []string{"E " + v4.web, "E " + v6.web, "I " + v4.web, "I " + v6.web}
	var oneport []string
	for _, rule := range open {
		oneport = append(oneport, fmt.Sprintf("%s tcp/%d udp/%d", rule, openPort, openPort))
	}
	for _, c := range []struct {
		name, isolates string
		rules          []string
		want           func(h hostile, in bool) string
	}{
		{"without policy", "", nil, func(hostile, bool) string { return pass }},
		{"peer allowed", "IE", open, func(h hostile, in bool) string { return pick(in, h.wholeIn, h.whole) }},
		{"port allowed", "IE", oneport, func(h hostile, in bool) string { return pick(in, h.portIn, h.port) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			g := newGround(t, options{both: true, mute: true, bridge: true})
			a := g.pod(testenv.PodA, c.isolates, c.rules...)
			sport := 20000
			for _, h := range hostiles {
				for _, f := range families {
					if h.bits != 0 && h.bits != f.bits {
						continue
					}
					for _, in := range []bool{false, true} {
						from, to := a.end, g.ext
						s := shot{family: f, src: f.a, dst: f.web, sport: sport}
						if sport++; in {
							from, to, s.src, s.dst = to, from, s.dst, s.src
						}
						want := strings.NewReplacer(pass, "allow", "drop: ", "deny ").Replace(c.want(h, in))
						if got := g.fate(from, to, h.make(s)); got != want {
							t.Errorf("%s: %s (%s > %s, %s): %s, want %s", h.section, h.name, from.name, to.name, f.name, got, want)
						}
					}
				}
			}
		})
	}
}

func pick(in bool, inward, other string) string {
	if in && inward != "" {
		return inward
	}
	return other
}

var update = flag.Bool("update", false, "write the documents that tests generate")

// The documented table is the one that is tested.
func TestDocument(t *testing.T) {
	const file = "../../docs/packets.md"
	const begin = "<!-- generated from integration/packets; go test ./integration/packets -run TestDocument -update -->\n"
	old, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	head, tail, ok := strings.Cut(string(old), begin)
	if !ok {
		t.Fatalf("%s has no line %q", file, begin)
	}
	want := head + begin + table()
	if *update {
		if err := os.WriteFile(file, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if table() != tail {
		t.Errorf("%s is out of date: run with -update", file)
	}
}

func table() string {
	var b bytes.Buffer
	section := ""
	for _, h := range hostiles {
		if h.section != section {
			section = h.section
			fmt.Fprintf(&b, "\n## %s\n\n| packet | family | peer allowed | one port of the peer allowed |\n|---|---|---|---|\n", section)
		}
		family := map[int]string{0: "both", 32: "IPv4", 128: "IPv6"}[h.bits]
		fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", h.name, family, cell(h.whole, h.wholeIn), cell(h.port, h.portIn))
	}
	return b.String()
}

func cell(out, in string) string {
	if in == "" || in == out {
		return out
	}
	return fmt.Sprintf("sent: %s; received: %s", out, in)
}
