package attach

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/latch-cni/latch/shared/pins"
)

// Severed tells whether the pin of a link is of no use any more, because its interface is gone: the pin
// outlives the interface. A pin that is not there, or no link's, is severed, too.
func Severed(linkPin string) (bool, error) {
	l, err := pins.LoadLink(linkPin, nil)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, pins.ErrKind) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	defer l.Close()
	info, err := l.Info()
	if err != nil {
		return false, fmt.Errorf("read link %s: %w", linkPin, err)
	}
	tcx := info.TCX()
	return tcx != nil && tcx.Ifindex == 0, nil
}
