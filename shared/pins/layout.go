//go:build !latchnext

package pins

import "github.com/latch-cni/latch/bpf"

// Layout is the version of the pinned objects. Builds with the tag latchnext take the next one: tests play
// the upgrade to a layout that is not there yet.
const Layout = bpf.Layout
