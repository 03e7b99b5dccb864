package state

import (
	"time"

	"github.com/latch-cni/latch/shared/identity"
	"github.com/latch-cni/latch/shared/policy"
)

// IdentifierRecord is what the slots of an identifier hold. Pods being created are judged by Create,
// running ones by Running; most of the time both are one slot.
type IdentifierRecord struct {
	Identifier identity.Identifier `json:"identifier"`
	Namespace  string              `json:"namespace"`
	Labels     map[string]string   `json:"labels,omitempty"`
	Create     SlotRef             `json:"create"`
	Running    SlotRef             `json:"running"`
	Policies   []policy.PolicyRef  `json:"policies,omitempty"`
	Pending    []policy.PolicyRef  `json:"pending,omitempty"`  // known, their endpoints objects are not
	Settling   []policy.PolicyRef  `json:"settling,omitempty"` // changed, and perhaps not complete yet: running pods wait for the rest
	UpdatedAt  time.Time           `json:"updatedAt"`
}

// SlotRef is a slot and the rules in it. The zero value is no slot.
type SlotRef struct {
	Slot       uint32          `json:"slot"`
	Hash       string          `json:"hash,omitempty"` // of the rules, hex
	Generation uint32          `json:"generation,omitempty"`
	Sources    []policy.Source `json:"sources,omitempty"` // what rule ids stand for
	Since      time.Time       `json:"since,omitzero"`
}

func (r IdentifierRecord) key() string { return string(r.Identifier) }

// WriteIdentifier writes the record of an identifier, in place of an older one.
func (s Store) WriteIdentifier(r IdentifierRecord) error {
	if _, err := identity.Parse(string(r.Identifier)); err != nil {
		return err
	}
	return write(s.path(dirIdentifiers, r.key()), r)
}

// ReadIdentifier returns the record of an identifier. The error wraps os.ErrNotExist when there is
// none.
func (s Store) ReadIdentifier(id identity.Identifier) (IdentifierRecord, error) {
	if _, err := identity.Parse(string(id)); err != nil {
		return IdentifierRecord{}, err
	}
	return readKey(s, dirIdentifiers, string(id), IdentifierRecord.key)
}

// ReadSlots returns what the record of an identifier says of its slots, without Sources. ADD needs no more,
// and to learn how the whole record is decoded takes a plugin longer than all else about it.
func (s Store) ReadSlots(id identity.Identifier) (create, running SlotRef, err error) {
	type slot struct {
		Slot       uint32 `json:"slot"`
		Hash       string `json:"hash"`
		Generation uint32 `json:"generation"`
	}
	var r struct {
		Create  slot `json:"create"`
		Running slot `json:"running"`
	}
	if _, err := identity.Parse(string(id)); err != nil {
		return create, running, err
	}
	err = read(s.path(dirIdentifiers, string(id)), &r)
	create = SlotRef{Slot: r.Create.Slot, Hash: r.Create.Hash, Generation: r.Create.Generation}
	running = SlotRef{Slot: r.Running.Slot, Hash: r.Running.Hash, Generation: r.Running.Generation}
	return create, running, err
}

// DeleteIdentifier deletes the record of an identifier. Nothing there is success.
func (s Store) DeleteIdentifier(id identity.Identifier) error {
	if _, err := identity.Parse(string(id)); err != nil {
		return err
	}
	return remove(s.path(dirIdentifiers, string(id)))
}

// ListIdentifiers returns all readable records, and an error that names the others.
func (s Store) ListIdentifiers() ([]IdentifierRecord, error) {
	return list(s, dirIdentifiers, IdentifierRecord.key)
}
