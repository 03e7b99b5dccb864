package main

import (
	"reflect"

	"github.com/latch-cni/latch/shared/state"
)

// keepSettings writes the plugin's defaults again when somebody has changed or removed them.
func (d *daemon) keepSettings() {
	if now, err := d.store.ReadSettings(); err == nil && sameSettings(now, d.opts.settings()) {
		return
	}
	d.log.Warn("the plugin's settings were not what they should be, writing them again")
	if err := d.store.WriteSettings(d.opts.settings()); err != nil {
		d.log.Error("write settings", "error", err)
	}
}

// sameSettings compares what the fields say, not where optional ones are.
func sameSettings(a, b state.NodeSettings) bool { return reflect.DeepEqual(a, b) }
