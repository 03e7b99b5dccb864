package main

import (
	"bytes"
	"context"
	"fmt"
	"time"

	"github.com/latch-cni/latch/integration/harness"
)

const manifest = "shop.yaml" // in the policy directory

// story is the demo, chapter by chapter.
func (d *demo) story(ctx context.Context) error {
	for _, chapter := range []func(context.Context) error{
		d.before, d.applied, d.edited, d.born, d.shown, d.killed,
	} {
		if err := chapter(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (d *demo) before(ctx context.Context) error {
	fmt.Fprintf(d.out.to, "%s\n", d.out.paint(bold, "Latch: network policy that is in force before a pod's first packet"))
	d.out.chapter("A node in a network namespace, three pods, no policy: everyone reaches everyone")
	if err := d.set(ctx); err != nil {
		return err
	}
	note := func(time.Duration) string {
		return "Connected by libcni: ptp with host-local, then latch. The whole ADD took " + d.adds() + "."
	}
	return d.expect(ctx, note, ".yy", "y.y", "yy.", "yyy")
}

// adds lists how long the chains took.
func (d *demo) adds() string {
	line := ""
	for _, r := range cast {
		if line != "" {
			line += ", "
		}
		line += fmt.Sprintf("%d ms", d.pods[r.name].Took.Milliseconds())
	}
	return line
}

func (d *demo) applied(ctx context.Context) error {
	d.out.chapter("Apply %s: web -> api:8080, api -> db:5432, and db opens nothing", d.file)
	if err := d.node.WriteManifest(manifest, d.sample); err != nil {
		return err
	}
	note := func(took time.Duration) string {
		return inForce(took) + " Of that, running pods wait 0.5 s to see\n" +
			"   whether more of a new policy follows. The node itself, with its probes of pods, is exempt.\n" +
			"   A star marks what has changed."
	}
	return d.expect(ctx, note, ".yn", "y.y", "nn.", "yyy")
}

// What the edit puts into the endpoints object of db, below its podIsolation.
const (
	editAfter = "  podIsolation: [Ingress, Egress]\n"
	editText  = "  egress:\n  - cidr: 10.244.0.11\n    ports: [{protocol: TCP, port: 80}]\n"
)

func (d *demo) edited(ctx context.Context) error {
	d.out.chapter("Edit it: db may open connections to web:80")
	for _, line := range bytes.Split(bytes.TrimSuffix([]byte(editText), []byte("\n")), []byte("\n")) {
		d.out.say("%s", d.out.paint(green, "+ "+string(line)))
	}
	edited := bytes.Replace(d.sample, []byte(editAfter), []byte(editAfter+editText), 1)
	if bytes.Equal(edited, d.sample) {
		return fmt.Errorf("%s has no line %q to edit", d.file, editAfter)
	}
	if err := d.node.WriteManifest(manifest, edited); err != nil {
		return err
	}
	return d.expect(ctx, inForce, ".yn", "y.y", "yn.", "yyy")
}

func inForce(took time.Duration) string {
	return fmt.Sprintf("In force %.1f s after the file was written.", took.Seconds())
}

func (d *demo) shown(ctx context.Context) error {
	d.out.chapter("What is in force, as the kernel says it")
	if err := d.latchctl(ctx, 0, "status"); err != nil {
		return err
	}
	if err := d.latchctl(ctx, 0, "rules", "shop/db"); err != nil {
		return err
	}
	if err := d.latchctl(ctx, 4, "explain", "--from", "shop/web", "--to", "shop/db", "--port", "5432/TCP"); err != nil {
		return err
	}
	return d.latchctl(ctx, 0, "check")
}

// eventually waits for packets that are on their way.
func eventually(ctx context.Context, check func() error) error {
	return harness.Eventually(ctx, 2*time.Second, check)
}
