package state

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/latch-cni/latch/shared/identity"
)

// The attachments of an identifier are found without reading those of others: a folder for each
// identifier holds an empty file for each attachment. The file is made before the record and
// deleted before it; one without a record, or whose record has moved to another identifier, says
// nothing.

func (s Store) members(id identity.Identifier) string {
	return filepath.Join(s.dir, dirMembers, string(id))
}

// AddMember notes that an attachment belongs to an identifier. Safe to call again.
func (s Store) AddMember(id identity.Identifier, containerID, ifname string) error {
	if _, err := identity.Parse(string(id)); err != nil {
		return err
	}
	if err := os.MkdirAll(s.members(id), 0o700); err != nil {
		return fmt.Errorf("add member: %w", err)
	}
	f, err := os.OpenFile(filepath.Join(s.members(id), identity.AttachmentKey(containerID, ifname)), os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("add member: %w", err)
	}
	return f.Close()
}

// RemoveMember takes an attachment from an identifier. Absent is fine.
func (s Store) RemoveMember(id identity.Identifier, containerID, ifname string) error {
	if _, err := identity.Parse(string(id)); err != nil {
		return err
	}
	if err := remove(filepath.Join(s.members(id), identity.AttachmentKey(containerID, ifname))); err != nil {
		return err
	}
	_ = os.Remove(s.members(id)) // fails while there are others
	return nil
}

// Members returns the attachments of an identifier. A record that cannot be read is named in the
// error; the others are returned.
func (s Store) Members(id identity.Identifier) ([]Attachment, error) {
	if _, err := identity.Parse(string(id)); err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(s.members(id))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list members: %w", err)
	}
	var found []Attachment
	var errs []error
	for _, e := range entries {
		a, err := s.ReadAttachmentKey(e.Name())
		switch {
		case errors.Is(err, os.ErrNotExist):
		case err != nil:
			errs = append(errs, err)
		case a.Identifier == id:
			found = append(found, a)
		}
	}
	return found, errors.Join(errs...)
}

// SweepMembers removes files of members without a record that a killed writer left, those older than age.
func (s Store) SweepMembers(age time.Duration) error {
	var errs []error
	left, _ := filepath.Glob(filepath.Join(s.dir, dirMembers, "*", "*")) // the pattern is good
	for _, path := range left {
		st, err := os.Lstat(path)
		if err != nil || time.Since(st.ModTime()).Abs() < age {
			continue
		}
		if _, err := os.Lstat(s.path(dirAttachments, filepath.Base(path))); errors.Is(err, os.ErrNotExist) {
			errs = append(errs, remove(path))
			_ = os.Remove(filepath.Dir(path)) // fails while there are others
		}
	}
	return errors.Join(errs...)
}

// FindAttachments returns the attachment of a container and interface name, or all of the container
// when ifname is empty. None is no error.
func (s Store) FindAttachments(containerID, ifname string) ([]Attachment, error) {
	if ifname != "" {
		a, err := s.ReadAttachment(containerID, ifname)
		if errors.Is(err, os.ErrNotExist) {
			return nil, nil
		}
		return []Attachment{a}, err
	}
	all, err := s.ListAttachments()
	var found []Attachment
	for _, a := range all {
		if a.ContainerID == containerID {
			found = append(found, a)
		}
	}
	return found, err
}
