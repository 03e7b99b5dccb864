package upgrade

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/latch-cni/latch/integration/harness"
	"github.com/latch-cni/latch/integration/soak/stage"
	"github.com/latch-cni/latch/shared/pins"
)

// Layout goes from the build of o to one with a newer layout of pins, and has the older one try to come
// back. The flow table is another one: a live flow goes on with the pod's next packet.
func Layout(ctx context.Context, o stage.Options, to *harness.Binaries) (f Figures, err error) {
	sc, err := newScene(ctx, o, o.Binaries)
	if err != nil {
		return f, err
	}
	defer func() { err = errors.Join(err, sc.close(ctx)) }()
	if f.There, err = sc.newer(ctx, to); err != nil {
		return f, err
	}
	if f.Said, err = sc.refusesNewer(ctx, o.Binaries); err != nil {
		return f, err
	}
	began := time.Now()
	sc.s.Use(to)
	if err := sc.s.StartLatchd(ctx); err != nil {
		return f, err
	}
	_, err = sc.edited()
	f.Back = time.Since(began)
	return f, errors.Join(err, sc.end(&f))
}

// newer has the build with the newer layout take over.
func (sc *scene) newer(ctx context.Context, to *harness.Binaries) (time.Duration, error) {
	older := pins.New(sc.s.Node.Bpffs).Root()
	if _, err := os.Stat(older); err != nil {
		return 0, err
	}
	began := time.Now()
	if err := sc.restart(ctx, to); err != nil {
		return 0, err
	}
	if _, err := sc.edited(); err != nil {
		return 0, err
	}
	took := time.Since(began)
	err := harness.Eventually(ctx, patience, func() error {
		if _, err := os.Stat(older); !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("the older layout is still there: %v", err)
		}
		return nil
	})
	_, editErr := sc.edited()
	return took, errors.Join(err, editErr, sc.starts(ctx), sc.othersStay(), sc.talk.Goes(patience))
}

// refusesNewer requires that a build refuses to work beside the newer layout, and says so, while what is
// in force stays.
func (sc *scene) refusesNewer(ctx context.Context, b *harness.Binaries) (said string, err error) {
	if err := sc.s.Node.StopLatchd(); err != nil {
		return "", err
	}
	sc.s.Use(b)
	p, err := sc.s.NewPod("refused", map[string]string{"app": "a"})
	if err != nil {
		return "", err
	}
	_, addErr := p.Add()
	if !stage.Refused(addErr) || !strings.Contains(addErr.Error(), "layout v") {
		return "", fmt.Errorf("the older plugin beside a newer layout: %v", addErr)
	}
	if err := p.Remove(); err != nil {
		return "", err
	}
	if err := sc.s.Node.StartLatchd(); err != nil {
		return "", err
	}
	err = harness.Eventually(ctx, patience, func() error {
		if sc.s.Node.Latchd.Running() == nil {
			return errors.New("the older latchd runs beside a newer layout")
		}
		return nil
	})
	if err != nil {
		return "", err
	}
	said = sc.s.Node.Latchd.LogTail(1)
	if !strings.Contains(said, "layout v") {
		err = fmt.Errorf("the older latchd does not say why it has ended: %s", said)
	}
	return addErr.Error(), errors.Join(err, sc.s.Node.KillLatchd(), sc.othersStay(), sc.talk.Goes(patience))
}
