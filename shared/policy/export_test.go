package policy

import "net/netip"

// What the kernel's comparison needs of the tests in this package.
var (
	ChooseInput = chooseInput
	Oracle      = oracle
	Seed        = seed
)

// Probe is a probe of the property tests.
type Probe = probe

// ProbesOf are the packets at which a verdict of an input can change.
func ProbesOf(in Input, d Direction) []Probe { return probes(in, d) }

// Unpack returns what a probe asks about.
func (p probe) Unpack() (netip.Addr, Protocol, uint16) { return p.addr, p.proto, p.port }
