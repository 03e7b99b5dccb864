package regress

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A table of packets and their verdicts, a line each:
//
//	FROM[:PORT] > TO PROTOCOL[/PORT,PORT...] ... : allow|deny
//
// FROM and TO are names of the ground; TO can be an address that the outside is the next hop of. A
// line stands for every family that both have. A line that starts with # is passed over.

// arrival bounds how long a packet is waited for.
const arrival = 5 * time.Second

// amongOthers is how long packets are waited for that are not the only ones to be dropped. One that is
// slower than this is found when the test ends.
const amongOthers = 50 * time.Millisecond

// sighting is where a packet would be seen.
type sighting struct {
	packet
	at string // name of the end
}

type row struct {
	sighting
	allow bool
}

func (g *ground) rows(table string) (rows []row) {
	for _, line := range strings.Split(strings.TrimSpace(table), "\n") {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		i := strings.LastIndex(line, " : ")
		verdict := map[string]bool{"allow": true, "deny": false}
		allow, ok := verdict[strings.TrimSpace(line[i+3:])]
		words := strings.Fields(line[:max(i, 0)])
		if !ok || len(words) < 4 || words[1] != ">" {
			panic(fmt.Sprintf("regress: line %q", line))
		}
		from, sport, _ := strings.Cut(words[0], ":")
		for _, w := range words[3:] {
			proto, list, _ := strings.Cut(w, "/")
			for _, port := range strings.Split(list, ",") {
				for _, p := range g.packets(from, sport, words[2], proto, port) {
					rows = append(rows, row{p, allow})
				}
			}
		}
	}
	return rows
}

// packets makes one packet for each family.
func (g *ground) packets(from, sport, to, proto, dport string) (out []sighting) {
	for _, src := range g.addresses(from) {
		i := slices.IndexFunc(g.addresses(to), func(a netip.Addr) bool { return a.Is4() == src.Is4() })
		if i < 0 {
			continue
		}
		mark := g.mark.Add(1)
		at := to
		if g.ends[to] == nil {
			at = "web" // somewhere outside
		}
		out = append(out, sighting{at: at, packet: packet{
			from: from, to: to, src: src, dst: g.addresses(to)[i], proto: proto, mark: mark,
			sport: portNumber(sport, uint16(10000+mark%50000)), dport: portNumber(dport, 0),
		}})
	}
	if out == nil {
		panic(fmt.Sprintf("regress: %s and %s have no family in common", from, to))
	}
	return out
}

func portNumber(s string, other uint16) uint16 {
	if s == "" {
		return other
	}
	n, err := strconv.ParseUint(s, 10, 16)
	if err != nil {
		panic(fmt.Sprintf("regress: port %q", s))
	}
	return uint16(n)
}

// expect sends the packets of a table and requires their verdicts.
func (g *ground) expect(what, table string) {
	g.t.Helper()
	if wrong := g.judge(table); len(wrong) > 0 {
		g.t.Fatalf("%s:\n\t%s", what, strings.Join(wrong, "\n\t"))
	}
}

// becomes polls with a table until its verdicts are right, at most inForce.
func (g *ground) becomes(what, table string) {
	g.t.Helper()
	g.within(inForce, what, table)
}

func (g *ground) within(patience time.Duration, what, table string) {
	g.t.Helper()
	deadline := time.Now().Add(patience)
	for {
		sent := time.Now()
		wrong := g.judgeOnce(table)
		if len(wrong) == 0 {
			return
		}
		if sent.After(deadline) {
			g.t.Fatalf("%s: after %v:\n\t%s", what, patience, strings.Join(wrong, "\n\t"))
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// judge is judgeOnce for packets whose denial is final: those that are denied must not come later.
func (g *ground) judge(table string) (wrong []string) {
	return g.verdicts(g.rows(table), true)
}

func (g *ground) judgeOnce(table string) (wrong []string) {
	return g.verdicts(g.rows(table), false)
}

// verdicts sends packets and says what is wrong. Every packet has its fate: it arrives or it is counted
// as dropped, so there is nothing to wait for longer; unless others are dropped at the same time.
func (g *ground) verdicts(rows []row, final bool) (wrong []string) {
	g.t.Helper()
	before := g.drops()
	for _, r := range rows {
		if err := g.send(r.packet); err != nil {
			g.t.Fatalf("send %s: %v", r.packet, err)
		}
	}
	var seen map[string]map[uint32]int
	var dropped uint64
	sent := time.Now()
	for ; ; time.Sleep(2 * time.Millisecond) {
		seen = g.sightings(rows)
		dropped = g.dropsSince(before)
		waited := time.Since(sent)
		if count(rows, seen)+int(dropped) >= len(rows) && (g.knocking.Load() == 0 || waited > amongOthers) || waited > arrival {
			break
		}
	}
	for _, r := range rows {
		switch n := seen[r.at][r.mark]; {
		case r.allow && n == 0:
			wrong = append(wrong, r.packet.String()+": did not arrive, want allow")
		case r.allow && n > 1:
			wrong = append(wrong, r.packet.String()+": arrived twice")
		case !r.allow && n > 0:
			wrong = append(wrong, r.packet.String()+": arrived, want deny")
		case !r.allow && final:
			g.forbidden = append(g.forbidden, r.sighting)
		}
	}
	if got := count(rows, seen) + int(dropped); len(wrong) == 0 && got < len(rows) {
		wrong = append(wrong, fmt.Sprintf("%d of %d packets neither arrived nor were counted as dropped", len(rows)-got, len(rows)))
	}
	return wrong
}

func (g *ground) sightings(rows []row) map[string]map[uint32]int {
	seen := map[string]map[uint32]int{}
	for _, r := range rows {
		if seen[r.at] == nil {
			seen[r.at] = g.arrived(r.at)
		}
	}
	return seen
}

func count(rows []row, seen map[string]map[uint32]int) (n int) {
	for _, r := range rows {
		if seen[r.at][r.mark] > 0 {
			n++
		}
	}
	return n
}

// arrivals sends the packets of a table from ends whose drops cannot be counted, waits a moment, and
// returns what has come through.
func arrivals(g *ground, table string) (arrived []string) {
	g.t.Helper()
	rows := g.rows(table)
	for _, r := range rows {
		if err := g.send(r.packet); err != nil {
			g.t.Fatal(err)
		}
	}
	time.Sleep(200 * time.Millisecond)
	seen := g.sightings(rows)
	for _, r := range rows {
		if seen[r.at][r.mark] > 0 {
			arrived = append(arrived, r.packet.String())
		}
	}
	return arrived
}
