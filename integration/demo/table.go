package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/latch-cni/latch/integration/harness"
	"github.com/latch-cni/latch/integration/probe"
)

// table is who reaches whom: rows send, columns receive. '.' is a pod to itself, 'y' and 'n' are
// outcomes, '?' is neither.
type table []string

// senders are the rows: the pods, then the node.
func (d *demo) senders() []*probe.Endpoint {
	var all []*probe.Endpoint
	for _, r := range cast {
		all = append(all, d.pods[r.name].Endpoint)
	}
	return append(all, d.self)
}

// ask sends one probe from everyone to everyone.
func (d *demo) ask(wait probe.Wait) (table, error) {
	var probes []probe.Probe
	for _, from := range d.senders() {
		for _, r := range cast {
			if to := d.pods[r.name]; to.Endpoint != from {
				probes = append(probes, probe.Probe{From: from, To: to.Endpoint, Target: probe.Target{Proto: probe.TCP, Port: r.port}})
			}
		}
	}
	outcomes, err := d.prober.Round(probes, wait)
	if err != nil {
		return nil, err
	}
	var t table
	for _, from := range d.senders() {
		row := ""
		for _, r := range cast {
			if r.name == from.Name {
				row += "."
				continue
			}
			row += map[probe.Outcome]string{probe.Allowed: "y", probe.Denied: "n", probe.HalfOpen: "?"}[outcomes[0]]
			outcomes = outcomes[1:]
		}
		t = append(t, row)
	}
	return t, nil
}

// expect waits until the table is as expected, asks once more to be sure, and shows it, with the note,
// which may say how long it took.
func (d *demo) expect(ctx context.Context, note func(time.Duration) string, want ...string) error {
	begin := time.Now()
	var got table
	err := harness.Eventually(ctx, 8*time.Second, func() (err error) {
		if got, err = d.ask(probe.Glance); err == nil && strings.Join(got, " ") != strings.Join(want, " ") {
			err = errNotYet
		}
		return err
	})
	took := time.Since(begin)
	if err == nil {
		got, err = d.ask(probe.Careful)
	}
	if got == nil {
		return err
	}
	d.out.say("%s", note(took))
	d.out.table(d.senders(), got, want, d.last)
	d.last = got
	return nil
}

var errNotYet = fmt.Errorf("not everyone reaches whom they should")
