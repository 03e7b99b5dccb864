package state

import (
	"net/netip"
	"os"
	"path/filepath"
	"time"

	"github.com/latch-cni/latch/shared/identity"
)

// Phase is how far the write path got with an attachment.
type Phase string

// Phases. An intent is written before the kernel is touched, so that the next holder of the lock knows
// what to finish or to undo.
const (
	PhaseIntent   Phase = "intent"
	PhaseEnforced Phase = "enforced"
)

// Defaults that an attachment can be bound to when nothing is known about its pod.
const (
	DefaultAllow = "allow"
	DefaultDeny  = "deny"
)

// Rules of an identifier: those for pods being created, and those for running ones, which are the same most of
// the time.
const (
	RulesCreate  = "create"
	RulesRunning = "running"
)

// Attachment is a container id and interface name, and what is enforced for them.
type Attachment struct {
	Network      string              `json:"network,omitempty"` // name of the CNI network: GC lists what is valid per network
	ContainerID  string              `json:"containerID"`
	IfName       string              `json:"ifName"`
	Netns        string              `json:"netns,omitempty"`
	PodNamespace string              `json:"podNamespace"`
	PodName      string              `json:"podName"`
	PodUID       string              `json:"podUID,omitempty"`
	Identifier   identity.Identifier `json:"identifier,omitempty"` // of the pod's name when bound to a default
	Phase        Phase               `json:"phase"`
	Slot         uint32              `json:"slot"`
	Rules        string              `json:"rules,omitempty"` // which of the identifier's it has: RulesCreate or RulesRunning; empty in records of early builds
	CreatedAt    time.Time           `json:"createdAt"`
	Interfaces   []Interface         `json:"interfaces"`
	Default      string              `json:"default,omitempty"` // DefaultAllow, DefaultDeny or empty
	Adopted      bool                `json:"adopted,omitempty"` // of a pod that ran already; the container id is AdoptedContainer, which no runtime knows
}

// AdoptedContainer stands for the container id of an adopted pod.
func AdoptedContainer(podUID string) string { return "adopted-" + podUID }

// Interface is one host interface of an attachment.
type Interface struct {
	Ifindex int        `json:"ifindex"`
	Name    string     `json:"name"`
	PodID   uint32     `json:"podID"` // unique on the node: owner of flows, events and link pins
	Addr4   netip.Addr `json:"addr4,omitzero"`
	Addr6   netip.Addr `json:"addr6,omitzero"`
	Mode    string     `json:"mode"` // how it is attached: a mode of package attach

	AntiSpoof bool `json:"antiSpoof,omitempty"` // what it sends must bear its own addresses
}

func (a Attachment) key() string { return identity.AttachmentKey(a.ContainerID, a.IfName) }

// WriteAttachment writes the record of an attachment, in place of an older one.
func (s Store) WriteAttachment(a Attachment) error { return write(s.path(dirAttachments, a.key()), a) }

// ReadAttachment returns the record of an attachment. The error wraps os.ErrNotExist when there is
// none.
func (s Store) ReadAttachment(containerID, ifname string) (Attachment, error) {
	return s.ReadAttachmentKey(identity.AttachmentKey(containerID, ifname))
}

// ReadAttachmentKey reads an attachment by the key that names its file.
func (s Store) ReadAttachmentKey(key string) (Attachment, error) {
	return readKey(s, dirAttachments, key, Attachment.key)
}

// MakeAttachmentDir makes the folder of attachments, for watching it, and returns its path.
func (s Store) MakeAttachmentDir() (string, error) {
	dir := filepath.Join(s.dir, dirAttachments)
	return dir, os.MkdirAll(dir, 0o700)
}

// DeleteAttachment deletes the record of an attachment. Nothing there is success.
func (s Store) DeleteAttachment(containerID, ifname string) error {
	return remove(s.path(dirAttachments, identity.AttachmentKey(containerID, ifname)))
}

// ListAttachments returns all readable records, and an error that names the others.
func (s Store) ListAttachments() ([]Attachment, error) {
	return list(s, dirAttachments, Attachment.key)
}
