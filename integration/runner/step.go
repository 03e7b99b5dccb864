package runner

import (
	"context"
	"fmt"
	"time"

	"github.com/latch-cni/latch/integration/probe"
	"github.com/latch-cni/latch/integration/scenario"
)

// question is one verdict to find out.
type question struct {
	scenario.Cell
	probe.Probe
	control bool // node to pod or pod to node: always allowed
}

// step feeds one state and judges it.
func (w *worker) step(ctx context.Context, s *scenario.Scenario, index int, st scenario.State) (StepResult, error) {
	res := StepResult{Index: index, Description: st.Description}
	begin := time.Now()
	if err := w.feed(st); err != nil {
		return res, err
	}
	if err := w.syncPods(ctx, st.Pods); err != nil {
		return res, err
	}
	if w.opts.StandIn != nil {
		if err := w.opts.StandIn(w.node, st); err != nil {
			return res, err
		}
	}
	questions, err := w.questions(s, st)
	if err != nil {
		return res, err
	}
	for _, q := range questions {
		if q.control {
			res.Control++
		} else {
			res.Cells++
		}
	}
	wrong, err := w.settle(ctx, begin, questions, &res)
	for _, i := range wrong {
		res.Wrong = append(res.Wrong, w.wrong(st, questions[i.index], i.got))
	}
	return res, err
}

// questions lists the cells of the state's tables and the control cells.
func (w *worker) questions(s *scenario.Scenario, st scenario.State) ([]question, error) {
	ends := map[string]*probe.Endpoint{}
	for _, p := range st.Pods {
		ends[p.Key()] = w.pods[p.UID()].Endpoint
	}
	node := w.self[s.HostIP.Is4()]
	var qs []question
	for _, c := range st.Expect.Cells() {
		t, err := target(c.Target)
		if err != nil {
			return nil, err
		}
		qs = append(qs, question{c, probe.Probe{From: ends[c.From], To: ends[c.To], Target: t}, false})
	}
	for _, target2 := range st.Expect.Targets() {
		t, err := target(target2)
		if err != nil {
			return nil, err
		}
		for key, end := range ends {
			qs = append(qs,
				question{scenario.Cell{From: "node", To: key, Target: target2, Want: scenario.Allow}, probe.Probe{From: node, To: end, Target: t}, true},
				question{scenario.Cell{From: key, To: "node", Target: target2, Want: scenario.Allow}, probe.Probe{From: end, To: node, Target: t}, true})
		}
	}
	return qs, nil
}

func target(t scenario.Target) (probe.Target, error) {
	proto, err := probe.ParseProto(t.Protocol)
	return probe.Target{Proto: proto, Port: t.Port}, err
}

// miss is a question that was not answered as expected.
type miss struct {
	index int
	got   probe.Outcome
}

// settle probes until everything is as expected, at the earliest when Settle is over, and then once
// more. After Patience it returns what is still wrong.
func (w *worker) settle(ctx context.Context, begin time.Time, qs []question, res *StepResult) ([]miss, error) {
	earliest, latest := begin.Add(w.opts.Settle), begin.Add(w.opts.Patience)
	pause := 50 * time.Millisecond
	for {
		wrong, err := w.round(qs, probe.Glance, res)
		if err != nil {
			return nil, err
		}
		if len(wrong) == 0 {
			if res.Settled == 0 {
				res.Settled = time.Since(begin)
			}
			if early := time.Until(earliest); early > 0 {
				time.Sleep(early)
			}
			if wrong, err = w.round(qs, probe.Careful, res); err != nil {
				return nil, err
			}
			if len(wrong) == 0 {
				w.prober.Keep()
				return nil, nil
			}
		}
		res.Settled = 0
		if time.Now().After(latest) {
			return w.round(qs, probe.Careful, res)
		}
		if err := w.crashed(); err != nil {
			return wrong, err
		}
		select {
		case <-ctx.Done():
			return wrong, ctx.Err()
		case <-time.After(pause):
		}
		pause = min(2*pause, 400*time.Millisecond)
	}
}

func (w *worker) round(qs []question, wait probe.Wait, res *StepResult) ([]miss, error) {
	probes := make([]probe.Probe, len(qs))
	for i, q := range qs {
		probes[i] = q.Probe
	}
	got, err := w.prober.Round(probes, wait)
	if err != nil {
		return nil, err
	}
	res.Rounds++
	var wrong []miss
	for i, o := range got {
		if o.Letter() != qs[i].Want {
			wrong = append(wrong, miss{i, o})
		}
	}
	return wrong, nil
}

func (w *worker) wrong(st scenario.State, q question, got probe.Outcome) Wrong {
	r := Wrong{From: q.Cell.From, To: q.Cell.To, Target: q.Cell.Target.String(), Want: string(q.Want), Got: string(got.Letter())}
	if w.opts.Explain != nil && !q.control {
		r.Why = w.opts.Explain(st, q.Cell)
	}
	return r
}

const manifestFile = "scenario.yaml"

// feed replaces the policy directory's content with a state.
func (w *worker) feed(st scenario.State) error {
	docs, err := st.Documents(w.node.Name())
	if err != nil {
		return err
	}
	files := map[string][]byte{}
	if w.opts.Spread {
		for _, d := range docs {
			files[d.Name] = d.Raw
		}
	} else {
		files[manifestFile] = scenario.Join(docs)
	}
	for name, content := range files {
		if err := w.node.WriteManifest(name, content); err != nil {
			return err
		}
	}
	for name := range w.files {
		if _, found := files[name]; found {
			continue
		}
		if err := w.node.RemoveManifest(name); err != nil {
			return fmt.Errorf("feed state: %w", err)
		}
		delete(w.files, name)
	}
	for name := range files {
		w.files[name] = true
	}
	return nil
}
