// Command latch is the CNI plugin: chained last, it brings each pod under its network policy before
// the runtime's ADD returns. All of it is in package plugin.
package main

import (
	"github.com/containernetworking/cni/pkg/skel"

	"github.com/latch-cni/latch/plugin"
)

// version is set when a release is built.
var version = "devel"

func main() {
	skel.PluginMainFuncs(plugin.Funcs(), plugin.Versions(), "CNI plugin latch "+version)
}
