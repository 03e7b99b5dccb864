package identity

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
)

// Domain tags. A change of any encoding below needs a new tag, since pinned slots and records of the
// previous build carry the old identifiers.
const (
	domainLabels     = "latch/identifier/labels/1"
	domainName       = "latch/identifier/name/1"
	domainPod        = "latch/pod/1"
	domainAttachment = "latch/attachment/1"
)

// size is the number of bytes of a digest that are kept: 128 bits.
const size = 16

// Identifier names the pods that no policy can tell apart, as 32 lower-case hex digits. The zero value
// names nothing.
type Identifier string

// Of returns the identifier of pods of the namespace with exactly these labels.
func Of(namespace string, labels map[string]string) Identifier {
	return Identifier(digest(encodeLabels(namespace, labels)))
}

// OfName returns the identifier of a pod whose labels are not known. It never equals one that Of
// returns.
func OfName(namespace, pod string) Identifier {
	return Identifier(digest(encodeStrings(domainName, namespace, pod)))
}

// Parse checks that s has the form of an identifier. It is for input that crosses a process: file
// names, records, command lines.
func Parse(s string) (Identifier, error) {
	if len(s) != 2*size {
		return "", fmt.Errorf("parse identifier %q: want %d hex digits, have %d characters", s, 2*size, len(s))
	}
	for i := range len(s) {
		if c := s[i]; (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return "", fmt.Errorf("parse identifier %q: want lower-case hex digits only", s)
		}
	}
	return Identifier(s), nil
}

// UnmarshalText checks the form of an identifier in a record; an empty one is the zero value.
func (id *Identifier) UnmarshalText(b []byte) error {
	if len(b) == 0 {
		*id = ""
		return nil
	}
	parsed, err := Parse(string(b))
	if err == nil {
		*id = parsed
	}
	return err
}

// Bytes returns the binary form, as kept in a slot of the kernel. It panics if the identifier was
// made neither by this package nor checked by Parse.
func (id Identifier) Bytes() [size]byte {
	if _, err := Parse(string(id)); err != nil {
		panic("identity: " + err.Error())
	}
	var b [size]byte
	_, _ = hex.Decode(b[:], []byte(id)) // Parse has seen every digit
	return b
}

// FromBytes returns the identifier with this binary form. All zero is the zero identifier.
func FromBytes(b [size]byte) Identifier {
	if b == [size]byte{} {
		return ""
	}
	return Identifier(hex.EncodeToString(b[:]))
}

// PodKey names the record file of a pod.
func PodKey(namespace, name string) string {
	return digest(encodeStrings(domainPod, namespace, name))
}

// AttachmentKey names the record file of an attachment: a container id and an interface name.
func AttachmentKey(containerID, ifname string) string {
	return digest(encodeStrings(domainAttachment, containerID, ifname))
}

func digest(encoded []byte) string {
	sum := sha256.Sum256(encoded)
	return hex.EncodeToString(sum[:size])
}

func encodeLabels(namespace string, labels map[string]string) []byte {
	parts := make([]string, 0, 1+2*len(labels))
	parts = append(parts, namespace)
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		parts = append(parts, key, labels[key])
	}
	return encodeStrings(domainLabels, parts...)
}

// encodeStrings is injective: the number of parts, then each part behind its length.
func encodeStrings(domain string, parts ...string) []byte {
	b := binary.BigEndian.AppendUint32(nil, uint32(len(domain)))
	b = append(b, domain...)
	b = binary.BigEndian.AppendUint32(b, uint32(len(parts)))
	for _, p := range parts {
		b = binary.BigEndian.AppendUint32(b, uint32(len(p)))
		b = append(b, p...)
	}
	return b
}
