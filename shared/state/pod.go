package state

import (
	"time"

	"github.com/latch-cni/latch/shared/identity"
)

// PodRecord is what latchd knows about a pod of its node. ADD waits for it.
type PodRecord struct {
	Namespace   string              `json:"namespace"`
	Name        string              `json:"name"`
	UID         string              `json:"uid,omitempty"` // empty if not known
	Identifier  identity.Identifier `json:"identifier"`
	Labels      map[string]string   `json:"labels,omitempty"`
	PublishedAt time.Time           `json:"publishedAt"`
}

func (r PodRecord) key() string { return identity.PodKey(r.Namespace, r.Name) }

// WritePod writes the record of a pod, in place of an older one.
func (s Store) WritePod(r PodRecord) error { return write(s.path(dirPods, r.key()), r) }

// ReadPod returns the record of a pod. The error wraps os.ErrNotExist when there is none.
func (s Store) ReadPod(namespace, name string) (PodRecord, error) {
	return readKey(s, dirPods, identity.PodKey(namespace, name), PodRecord.key)
}

// DeletePod deletes the record of a pod. Nothing there is success.
func (s Store) DeletePod(namespace, name string) error {
	return remove(s.path(dirPods, identity.PodKey(namespace, name)))
}

// ListPods returns all readable records, and an error that names the others.
func (s Store) ListPods() ([]PodRecord, error) { return list(s, dirPods, PodRecord.key) }
