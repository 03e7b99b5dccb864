package regress

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/latch-cni/latch/shared/testenv"
)

// R12: one policy in several endpoints objects, and changes that come in pieces. Who is allowed before and
// after loses nothing, who is allowed neither before nor after never gets through.

// chunk is an endpoints object of policy t1/NAME for app=NAME.
func chunk(name, part string, rules ...string) string {
	return fmt.Sprintf("t1/%s#%s app=%s I\n%s", name, part, name, strings.Join(rules, "\n"))
}

// peers are rules for addresses that nobody has.
func peers(network string, n int) (rules []string) {
	for i := range n {
		rules = append(rules, fmt.Sprintf("I %s.%d.%d/32 tcp/8080 udp/8080", network, i/250, 1+i%250))
	}
	return rules
}

const aToB = "I A tcp/8080 udp/8080"

func named(label string, last int) testenv.PodSpec {
	return testenv.PodSpec{Namespace: "t1", Name: "pod-" + label, Labels: map[string]string{"app": label},
		Addr4: fmt.Sprintf("10.0.1.%d", last), Addr6: fmt.Sprintf("fd00:10:1::%d", last)}
}

// (1) The objects come 100 ms apart, in every order, to a pod that runs already.
func TestR12ChunksComeOneByOne(t *testing.T) {
	g := newGround(t, options{})
	g.start("A", testenv.PodA)
	orders := []string{"xyz", "xzy", "yxz", "yzx", "zxy", "zyx"}
	var rains []*rain
	var pods []*pod
	for i, order := range orders {
		p := g.start(order, named(order, 100+i))
		g.listen(order, 8080)
		pods = append(pods, p)
		rains = append(rains, g.rain("A", order, 8080, 5*time.Millisecond, 40*time.Millisecond))
	}
	y, z := append(peers("10.20", 999), aToB), peers("10.21", 1000)
	write := func(i, part int) {
		t.Helper()
		rules := map[byte][]string{'x': nil, 'y': y, 'z': z}[orders[i][part]]
		pe := g.policy(chunk(orders[i], orders[i][part:part+1], rules...))
		if orders[i][part] == 'x' {
			pe.lists(pods[i])
		}
		g.write(pe.file(), pe.manifest())
	}
	for part := range 3 {
		for i := range orders {
			write(i, part)
		}
		time.Sleep(100 * time.Millisecond)
	}
	for _, order := range orders {
		shut := "other > " + order + " tcp/8080 udp/8080 : deny"
		g.becomes(order, shut)
		g.expect(order, shut+"\nA > "+order+" tcp/8080 : allow")
	}
	for i, order := range orders {
		g.lossless(order, rains[i])
	}
	g.healthy()
}

// (2) A pod that starts in between gets everything that is known, at once.
func TestR12PodStartsBetweenChunks(t *testing.T) {
	g := newGround(t, options{})
	g.start("A", testenv.PodA)
	b := g.pod("B", named("big", 12))
	b.publish(nil)
	pe := g.policy(chunk("big", "x")).lists()
	g.write(pe.file(), pe.manifest())
	g.apply(chunk("big", "y", append(peers("10.20", 999), aToB)...))
	time.Sleep(200 * time.Millisecond) // for latchd to read the files: the pod's record is older
	b.add()
	now := "A > B tcp/8080 udp/8080 : allow\nother > B tcp/8080 udp/8080 : deny"
	g.expect("at ADD's return", now)
	g.apply(chunk("big", "z", peers("10.21", 1000)...))
	g.expect("z comes", now)
	g.healthy()
}

// live is B under a policy of two objects, with a rain of A that must not be lost and knocks that must not
// get through.
type live struct {
	*ground
	rain  *rain
	knock func() []string
}

func newLive(t *testing.T, y, z []string) *live {
	t.Helper()
	g := newGround(t, options{})
	g.start("A", testenv.PodA)
	g.start("C", testenv.PodC)
	g.start("D", testenv.PodD)
	b := g.pod("B", named("big", 12))
	b.publish(nil)
	g.apply(chunk("big", "y", y...), chunk("big", "z", z...))
	time.Sleep(200 * time.Millisecond)
	b.add()
	g.becomes("before", "A > B tcp/8080 : allow\nother > B tcp/8080 : deny")
	g.listen("B", 8080)
	return &live{ground: g, rain: g.rain("A", "B", 8080, time.Millisecond, 10*time.Millisecond),
		knock: g.knock(5*time.Millisecond, "other > B tcp/8080 udp/8080 : deny")}
}

func (l *live) unharmed(what string) {
	l.t.Helper()
	l.lossless(what, l.rain)
	if arrived := l.knock(); arrived != nil {
		l.t.Errorf("%s: %v", what, arrived)
	}
	l.expect(what, "A > B tcp/8080 : allow\nother > B tcp/8080 udp/8080 : deny")
	l.healthy()
}

// (3) An address moves from one object to another: the new place first, then the old one first.
func TestR12AddressMovesBetweenChunks(t *testing.T) {
	y, z := peers("10.20", 999), peers("10.21", 999)
	with := func(rules []string) []string { return append([]string{aToB}, rules...) }
	l := newLive(t, with(y), z)
	for range 3 {
		l.apply(chunk("big", "z", with(z)...))
		time.Sleep(100 * time.Millisecond)
		l.apply(chunk("big", "y", y...))
		time.Sleep(800 * time.Millisecond)
		l.apply(chunk("big", "z", z...))
		time.Sleep(100 * time.Millisecond)
		l.apply(chunk("big", "y", with(y)...))
		time.Sleep(800 * time.Millisecond)
	}
	l.unharmed("A moved between the objects")
}

// (4) An object's content is replaced by another that shares one address with it.
func TestR12ChunkIsReplaced(t *testing.T) {
	l := newLive(t, append(peers("10.20", 1000), aToB, "I C tcp/8080"), peers("10.21", 1000))
	sets := [][]string{
		append(peers("10.22", 5000), aToB, "I D tcp/8080"),
		append(peers("10.20", 1000), aToB, "I C tcp/8080"),
	}
	after := []string{"D > B tcp/8080 : allow", "C > B tcp/8080 : allow"}
	gone := []string{"C > B tcp/8080 : deny", "D > B tcp/8080 : deny"}
	for i, set := range sets {
		l.apply(chunk("big", "y", set...))
		l.within(time.Second, "replaced", after[i])
		l.within(time.Second, "replaced", gone[i])
		l.expect("replaced", after[i]+"\n"+gone[i])
	}
	l.unharmed("y replaced")
}

// (5) The same block in two objects, with other ports: each takes its own away.
func TestR12SameBlockInTwoChunks(t *testing.T) {
	l := newLive(t, []string{aToB, "I C tcp/8080"}, []string{"I C tcp/9090"})
	l.expect("both", "C > B tcp/8080,9090 : allow")
	l.withdraw("t1/big-z")
	l.becomes("z deleted", "C > B tcp/9090 : deny")
	l.expect("z deleted", "C > B tcp/8080 : allow\nC > B tcp/9090 : deny")
	l.unharmed("z deleted")
}
