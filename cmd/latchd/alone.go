package main

import (
	"errors"
	"fmt"
	"os"

	"github.com/latch-cni/latch/shared/lock"
)

// stayAlone holds the state directory for the life of the process: two latchds with different policy
// would take turns in putting their own in force.
func stayAlone(stateDir string) (release func(), err error) {
	if err := os.MkdirAll(stateDir, 0o700); err != nil {
		return nil, fmt.Errorf("make the state directory: %w", err)
	}
	release, err = lock.Folder(stateDir)
	if errors.Is(err, lock.ErrHeld) {
		return nil, fmt.Errorf("another latchd runs with --state-dir %s: stop it, or give this one directories of its own", stateDir)
	}
	return release, err
}
