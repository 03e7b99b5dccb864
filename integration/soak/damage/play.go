package damage

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/latch-cni/latch/integration/harness"
	"github.com/latch-cni/latch/integration/soak/stage"
	"github.com/latch-cni/latch/shared/pins"
)

const (
	patience = 2 * time.Second // for one datagram that must arrive
	slack    = 8 * time.Second // a machine that does other work is late
)

// Outcome is what one damage led to.
type Outcome struct {
	Damage  string        `json:"damage"`
	Took    time.Duration `json:"took"`    // until it was mended
	Said    string        `json:"said"`    // what latchd logged
	Slipped int64         `json:"slipped"` // datagrams that no policy allows and that arrived
	Err     error         `json:"-"`
	Failed  string        `json:"failed,omitempty"`
}

// Play breaks everything once, or what only says, on a node of its own whose latchd audits once a period.
func Play(ctx context.Context, o stage.Options, period time.Duration, only func(Damage) bool, done func(Outcome)) (err error) {
	o.Latchd = append(o.Latchd, "--audit-period", period.String())
	s, err := stage.New(ctx, o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close(ctx)) }()
	p := &play{s: s, period: period}
	if err := p.start(); err != nil {
		return err
	}
	for _, d := range All() {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if only != nil && !only(d) {
			continue
		}
		out := p.one(ctx, d)
		if out.Err != nil {
			out.Failed = out.Err.Error()
		}
		done(out)
	}
	return errors.Join(p.clsact.Remove(), p.tcx.Remove(), s.Delete(policy))
}

var policy = stage.Policy{App: "a", Peers: 40}

type play struct {
	s           *stage.Stage
	clsact, tcx *stage.Pod
	made        int
	period      time.Duration
}

func (p *play) start() (err error) {
	if err := p.s.Write(policy); err != nil {
		return err
	}
	if p.clsact, err = p.s.Start("clsact", map[string]string{"app": "a"}, map[string]any{"attachMode": "clsact"}); err != nil {
		return err
	}
	if p.tcx, err = p.s.Start("tcx", map[string]string{"app": "a", "by": "tcx"}, map[string]any{"attachMode": "tcx"}); err != nil {
		return err
	}
	return errors.Join(p.clsact.Obeys(patience), p.tcx.Obeys(patience))
}

// reborn gives a pod back the way of attaching that it had: the audit may have chosen another.
func (p *play) reborn(tcx bool) (*stage.Pod, error) {
	name, at := "clsact", &p.clsact
	if tcx {
		name, at = "tcx", &p.tcx
	}
	h := hand{s: p.s, pod: *at}
	if err := h.refresh(); err == nil && h.iface().Mode == name && len(h.links) == 0 {
		return *at, nil
	}
	if err := (*at).Remove(); err != nil {
		return nil, err
	}
	fresh, err := p.s.Start(name, (*at).Labels, (*at).Entry)
	if err == nil {
		*at = fresh
	}
	return fresh, err
}

func (p *play) one(ctx context.Context, d Damage) (out Outcome) {
	out.Damage = d.Name
	pod, err := p.reborn(d.tcx)
	if err != nil {
		out.Err = fmt.Errorf("prepare: %w", err)
		return out
	}
	p.made++
	h := &hand{s: p.s, pod: pod, pins: pins.New(p.s.Node.Bpffs)}
	if h.foreign, out.Err = newForeign(p.s.Node.Bpffs, fmt.Sprintf("foreign%d", p.made), 0); out.Err != nil {
		return out
	}
	defer h.foreign.close()
	if out.Err = h.refresh(); out.Err != nil {
		return out
	}
	if out.Err = p.whole(ctx, 4*p.period+slack); out.Err != nil {
		out.Err = fmt.Errorf("before: %w", out.Err)
		return out
	}
	log := p.log()
	began := time.Now()
	flood := startFlood(pod)
	defer flood.stop()
	if out.Err = d.do(h); out.Err != nil {
		out.Err = fmt.Errorf("break it: %w", out.Err)
		return out
	}
	out.Err = harness.Eventually(ctx, p.period+slack, func() error {
		if err := p.s.Node.Latchd.Running(); err != nil {
			return err
		}
		if out.Said = p.said(log, d.Says); out.Said == "" && !d.silent {
			return fmt.Errorf("latchd has not said %q", d.Says)
		}
		return errors.Join(p.healthy(), pod.Obeys(patience))
	})
	out.Took = time.Since(began)
	out.Slipped = flood.stop()
	if out.Err == nil && out.Slipped > 0 && !d.opens {
		out.Err = fmt.Errorf("%d datagrams arrived that no policy allows", out.Slipped)
	}
	if out.Err == nil && d.after != nil {
		out.Err = d.after(h)
	}
	for _, l := range h.links {
		out.Err = errors.Join(out.Err, l.Close())
	}
	_ = h.tc("filter", "del", "dev", pod.HostName, "ingress", "protocol", "all", "prio", "1", "handle", "0x9", "bpf")
	return out
}

// whole waits until nothing is wrong.
func (p *play) whole(ctx context.Context, patience time.Duration) error {
	return harness.Eventually(ctx, patience, p.healthy)
}

// healthy compares the kernel with the records from outside.
func (p *play) healthy() error {
	return p.s.OnNode(func() error {
		n, err := p.s.View()
		if err != nil {
			return err
		}
		defer n.Close()
		report, err := n.Audit()
		if err == nil && len(report.Problems) > 0 {
			err = fmt.Errorf("%v", report.Problems)
		}
		if err == nil && report.Attachments != 2 {
			err = fmt.Errorf("%d attachments are recorded, not 2", report.Attachments)
		}
		return err
	})
}

func (p *play) log() int64 {
	info, err := os.Stat(filepath.Join(p.s.Node.Dir, "latchd.log"))
	if err != nil {
		return 0
	}
	return info.Size()
}

// said looks in latchd's log, from an offset on, for a repair.
func (p *play) said(from int64, what string) string {
	raw, err := os.ReadFile(filepath.Join(p.s.Node.Dir, "latchd.log"))
	if err != nil || int64(len(raw)) < from {
		return ""
	}
	for line := range strings.Lines(string(raw[from:])) {
		var e struct{ Msg, What string }
		if json.Unmarshal([]byte(line), &e) != nil || !slices.Contains([]string{"repaired", "swept", "pinned objects changed under us"}, e.Msg) {
			continue
		}
		if text := strings.TrimSpace(e.Msg + " " + e.What); strings.Contains(text, what) {
			return text
		}
	}
	return ""
}

// flood sends what no policy allows, both ways, all the time.
type flood struct {
	pod    *stage.Pod
	before int64
	end    chan struct{}
	done   sync.WaitGroup
	once   sync.Once
}

func startFlood(pod *stage.Pod) *flood {
	f := &flood{pod: pod, before: pod.Out.Of(stage.Never) + pod.In.Of(stage.Never), end: make(chan struct{})}
	f.done.Go(func() {
		for {
			select {
			case <-f.end:
				return
			case <-time.After(2 * time.Millisecond):
				_, _ = pod.Send(stage.Never), pod.Receive(stage.Never)
			}
		}
	})
	return f
}

// stop ends the flood and tells how much of it arrived. Safe to call again.
func (f *flood) stop() int64 {
	f.once.Do(func() { close(f.end) })
	f.done.Wait()
	time.Sleep(10 * time.Millisecond)
	return f.pod.Out.Of(stage.Never) + f.pod.In.Of(stage.Never) - f.before
}
