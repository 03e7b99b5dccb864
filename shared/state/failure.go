package state

import (
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/latch-cni/latch/shared/identity"
)

// Failure is an ADD that failed, as the plugin tells latchd, which takes the record away when it has
// passed it on. Nothing depends on it.
type Failure struct {
	PodNamespace string    `json:"podNamespace"`
	PodName      string    `json:"podName"`
	PodUID       string    `json:"podUID,omitempty"`
	ContainerID  string    `json:"containerID"`
	Code         uint      `json:"code"` // of the specification
	Message      string    `json:"message"`
	At           time.Time `json:"at"`
}

// maxFailures is how many records there are at most: nobody takes them away while latchd is down.
const maxFailures = 256

func (f Failure) key() string { return identity.PodKey(f.PodNamespace, f.PodName) }

// WriteFailure writes the record of a failed ADD, in place of an older one of the pod. Beyond a number of
// pods it writes nothing, nor if there is no folder of records.
func (s Store) WriteFailure(f Failure) error {
	if _, err := os.Stat(s.dir); err != nil {
		return nil
	}
	path := s.path(dirFailures, f.key())
	if _, err := os.Stat(path); err != nil {
		there, err := names(filepath.Join(s.dir, dirFailures))
		if err != nil {
			return fmt.Errorf("write failure: %w", err)
		}
		if len(there) >= maxFailures {
			return nil
		}
	}
	return write(path, f)
}

// ListFailures returns all readable records, and an error that names the others.
func (s Store) ListFailures() ([]Failure, error) { return list(s, dirFailures, Failure.key) }

// DeleteFailures deletes the records of failed ADDs, those that cannot be read, too. None is success.
func (s Store) DeleteFailures() error { return os.RemoveAll(filepath.Join(s.dir, dirFailures)) }

// DeleteFailure deletes the record of a pod's failed ADD. Nothing there is success.
func (s Store) DeleteFailure(f Failure) error { return remove(s.path(dirFailures, f.key())) }
