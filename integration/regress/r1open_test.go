package regress

import (
	"testing"
	"time"

	"github.com/latch-cni/latch/shared/testenv"
)

// The variant of R1: the policy comes while its pod has open flows that were made without one. The flow
// that it allows loses no segment; the one that it does not is cut when the grace is over.
func TestR1PolicyComesWhileFlowsAreOpen(t *testing.T) {
	const grace, pace = time.Second, 10 * time.Millisecond // newGround sets this grace
	g := newGround(t, options{})
	g.start("A", testenv.PodA)
	g.listen("web", 443)
	g.listen("other", 443)
	kept := g.stream("A", 40001, "web", 443, pace)
	cut := g.stream("A", 40002, "other", 443, pace)
	g.expect("no policy", "A:40003 > web tcp/443 : allow\nA:40003 > other tcp/443 : allow")

	g.apply(r1Policy)
	g.becomes("isolated", "A > other tcp/443 : deny")
	g.cut(cut, time.Now(), grace)
	g.expect("the policy, on new flows", "A:40004 > web tcp/443 : allow\nA:40004 > other tcp/443 : deny")
	g.flowing("the flow that the policy allows", kept, 10*time.Second)

	g.withdraw("t1/start")
	g.becomes("no policy any more", "A > other tcp/443 : allow")
	g.flowing("the flow that the policy allowed", kept, 10*time.Second)
	g.healthy()
}
