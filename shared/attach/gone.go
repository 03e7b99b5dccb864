package attach

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// ErrGone says that the interface is no longer there.
var ErrGone = errors.New("interface is gone")

// asGone makes one error of the two by which the kernel says that a device is not there: ENODEV, and
// ENOLINK for a link that has lost its device.
func asGone(err error) error {
	if errors.Is(err, unix.ENODEV) || errors.Is(err, unix.ENOLINK) {
		if !errors.Is(err, ErrGone) {
			return fmt.Errorf("%w: %w", ErrGone, err)
		}
	}
	return err
}
