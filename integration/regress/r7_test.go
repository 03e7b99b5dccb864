package regress

import (
	"fmt"
	"strings"
	"testing"

	"github.com/latch-cni/latch/shared/testenv"
)

// R7: ports and protocols. Two hundred ports in one rule, ranges, the edges of the number space, a
// protocol without port, every protocol, and a rule of the other family that must do no harm.
func TestR7PortsAndProtocols(t *testing.T) {
	g := newGround(t, options{})
	var list []string
	for port := 2000; port <= 3990; port += 10 {
		list = append(list, fmt.Sprintf("tcp/%d", port))
	}
	if len(list) != 200 {
		t.Fatal("not 200 ports")
	}
	b := g.pod("B", testenv.PodB)
	b.publish(nil)
	// In each family the rule of the whole other one stands beside the rules of this one.
	g.apply("t1/ports app=b I" +
		"\nI A tcp/1 tcp/32000-32767 tcp/65535 udp/5000-5000 sctp/3868 7777 " + strings.Join(list, " ") +
		"\nI C udp" +
		"\nI D" +
		"\nI 2001:db8:ffff::/48 tcp/1\nI 192.168.0.0/16 tcp/1")
	b.add()
	g.start("A", testenv.PodA)
	g.start("C", testenv.PodC)
	g.start("D", testenv.PodD)

	g.expect("A", `
		A > B tcp/1,32000,32400,32767,65535,7777,2000,2230,2240,3990 : allow
		A > B tcp/2,31999,32768,65534,2005,5000,3868,4000 : deny
		A > B udp/5000 : allow
		A > B udp/5001,7777,3868 : deny
		A > B sctp/3868 : allow
		A > B sctp/3869 : deny
		A > B icmp : deny`)
	g.expect("C", `
		C > B udp/1,53,65535 : allow
		C > B tcp/53 sctp/53 icmp : deny`)
	g.expect("D", "D > B tcp/9 udp/9 sctp/9 icmp gre : allow")
	g.expect("somebody else", `
		other > B tcp/1,32000,2000,7777,53,9 udp/5000,53,9 sctp/3868 icmp gre : deny`)
	g.expect("control: all of the 200 ports, and their neighbours", func() string {
		var allow, deny []string
		for port := 2000; port <= 3990; port += 10 {
			allow, deny = append(allow, fmt.Sprint(port)), append(deny, fmt.Sprint(port+1))
		}
		return "A > B tcp/" + strings.Join(allow, ",") + " : allow\nA > B tcp/" + strings.Join(deny, ",") + " : deny"
	}())
	g.healthy()
}

// R7: a rule for all of the other family does not make the update of this one fail.
func TestR7RuleOfTheOtherFamily(t *testing.T) {
	for _, c := range []struct{ name, addr4, addr6, all string }{
		{"IPv4 pod", testenv.PodB.Addr4, "", "::/0"},
		{"IPv6 pod", "", testenv.PodB.Addr6, "0.0.0.0/0"},
	} {
		t.Run(c.name, func(t *testing.T) {
			g := newGround(t, options{})
			spec := testenv.PodB
			spec.Addr4, spec.Addr6 = c.addr4, c.addr6
			b := g.pod("B", spec)
			b.publish(nil)
			g.apply("t1/ports app=b I\nI web tcp/80\nI " + c.all + " tcp/1")
			b.add()
			g.expect(c.name, "web > B tcp/80 : allow\nweb > B tcp/1,81 : deny\nother > B tcp/1,80 : deny")
		})
	}
}
