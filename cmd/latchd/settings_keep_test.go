package main

import (
	"testing"

	"github.com/latch-cni/latch/shared/state"
)

// What latchd wrote is what it wants, read back: else it would write the file again each second.
func TestSettingsSurviveTheirFile(t *testing.T) {
	o, err := parseFlags([]string{"--policy-dir", t.TempDir(), "--node-name", "n"})
	if err != nil {
		t.Fatal(err)
	}
	store := state.New(t.TempDir())
	if err := store.WriteSettings(o.settings()); err != nil {
		t.Fatal(err)
	}
	back, err := store.ReadSettings()
	if err != nil || !sameSettings(back, o.settings()) {
		t.Errorf("wrote %+v, read %+v, %v", o.settings(), back, err)
	}
	back.EnforcingMode = "strict"
	if sameSettings(back, o.settings()) {
		t.Error("a changed mode is taken for the same")
	}
}
