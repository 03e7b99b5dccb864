package rules

import (
	"encoding/hex"
	"fmt"

	"github.com/latch-cni/latch/shared/policy"
)

// Verify reads a slot back and compares it with the rules that it should hold: every prefix and port, the
// results of a miss, and the way in which packets are looked up. The caller holds the lock of the slot's
// identifier. The time that it takes grows with the rules.
func (t *Tables) Verify(slot uint32, hash [32]byte) error {
	c, err := t.Read(slot)
	if err != nil {
		return err
	}
	if got := c.Rules.Hash(); got != hash {
		return fmt.Errorf("slot %d holds rules %s, not %s", slot, hex.EncodeToString(got[:4]), hex.EncodeToString(hash[:4]))
	}
	want := shapesOf(c.Rules)
	for _, d := range policy.Directions {
		for _, f := range families {
			if got := c.shapes[d][f]; got.word() != want[d][f].word() || got.trie != want[d][f].trie {
				return fmt.Errorf("slot %d is looked up by prefix lengths %v, has %v", slot, got.lens, want[d][f].lens)
			}
		}
	}
	return nil
}
