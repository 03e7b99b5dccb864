package main

import (
	"errors"
	"fmt"
	"os"

	"github.com/latch-cni/latch/shared/lock"
)

// stayAlone holds a folder for the life of the process, of which flag says what it is: two latchds with different
// policy would take turns in putting their own in force, and with records of their own each would take what the
// other binds for a leftover.
func stayAlone(flag, folder string) (release func(), err error) {
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return nil, fmt.Errorf("make the folder of %s: %w", flag, err)
	}
	release, err = lock.Folder(folder)
	if errors.Is(err, lock.ErrHeld) {
		return nil, fmt.Errorf("another latchd works on %s (%s): stop it, or give this one --state-dir and --bpffs of its own", folder, flag)
	}
	return release, err
}
