package attach

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"github.com/latch-cni/latch/shared/pins"
)

// Severed tells whether the pin of a link is of no use any more, because its interface is gone: the pin
// outlives the interface. A pin that is not there, or no link's, is severed, too.
func Severed(linkPin string) (bool, error) {
	device, err := deviceOf(linkPin)
	return err == nil && device == 0, err
}

// deviceOf returns the index of the interface that a pinned link is attached to: 0 if there is none, or no
// link, any more, -1 if it is not a link of tcx.
func deviceOf(linkPin string) (int, error) {
	l, err := pins.LoadLink(linkPin, nil)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, pins.ErrKind) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	defer l.Close()
	info, err := l.Info()
	if err != nil {
		return 0, fmt.Errorf("read link %s: %w", linkPin, err)
	}
	if tcx := info.TCX(); tcx != nil {
		return int(tcx.Ifindex), nil
	}
	return -1, nil
}

// known returns ErrGone unless a link or filter of ours that is named by one of the pins is attached to the
// interface: they end with their own.
func (i *Interface) known(linkPins []string) error {
	for _, pin := range linkPins {
		if device, err := deviceOf(pin); err != nil || device == i.ifindex {
			return err
		}
	}
	for _, s := range Sides {
		found, err := filters(i, s.hook())
		if err != nil {
			return err
		}
		for _, f := range found {
			if f.ours && slices.ContainsFunc(linkPins, func(pin string) bool { return f.name == filterName(s, pin) }) {
				return nil
			}
		}
	}
	return fmt.Errorf("%w: another one has its index", ErrGone)
}
