//go:build latchnext

package pins

import "github.com/latch-cni/latch/bpf"

// Layout is the one after that of this build.
const Layout = bpf.Layout + 1
