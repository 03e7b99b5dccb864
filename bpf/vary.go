//go:build !latchother

package bpf

import "github.com/cilium/ebpf"

// vary makes other programs of the same meaning in builds with the tag latchother: tests play the upgrade
// from a build whose programs differ.
func vary(*ebpf.CollectionSpec) {}
