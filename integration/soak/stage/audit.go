package stage

import (
	"context"
	"fmt"
	"time"

	"github.com/latch-cni/latch/integration/harness"
	"github.com/latch-cni/latch/shared/attach"
	"github.com/latch-cni/latch/shared/pins"
)

// Whole waits until an inspection from outside finds that the kernel and the records agree, and that so
// many attachments are recorded. A negative number stands for any.
func (s *Stage) Whole(ctx context.Context, attachments int, patience time.Duration) error {
	return harness.Eventually(ctx, patience, func() error {
		return s.OnNode(func() error {
			n, err := s.View()
			if err != nil {
				return err
			}
			defer n.Close()
			report, err := n.Audit()
			switch {
			case err != nil:
				return err
			case len(report.Problems) > 0:
				return fmt.Errorf("%d problems, among them %v", len(report.Problems), report.Problems[0])
			case attachments >= 0 && report.Attachments != attachments:
				return fmt.Errorf("%d attachments are recorded, not %d", report.Attachments, attachments)
			}
			return nil
		})
	})
}

// Attached tells on which sides of the pod's interface a program of ours runs first.
func (p *Pod) Attached() (toPod, fromPod bool, err error) {
	err = p.s.OnNode(func() error {
		for side, on := range map[attach.Side]*bool{attach.ToPod: &toPod, attach.FromPod: &fromPod} {
			prog, err := pins.LoadProgram(pins.New(p.s.Node.Bpffs).Prog(side.String()), nil)
			if err != nil {
				return err
			}
			info, err := prog.Info()
			_ = prog.Close()
			if err != nil {
				return err
			}
			id, _ := info.ID()
			st, err := attach.Query(p.Ifindex, side, uint32(id))
			if err != nil {
				return err
			}
			*on = st.Effective
		}
		return nil
	})
	return toPod, fromPod, err
}
