// Package policy is the pure compiler: it turns the policies that select an identifier into the
// flat rules that the kernel looks up.
//
// Where in the flow: latchd resolves API objects into an Input, Compile makes Rules of it, and
// shared/enforce writes the Rules into the maps of a slot. Explain answers "why" from the same
// Input, and Lookup evaluates Rules as the programs do.
//
// A packet is judged by the remote address, in the pod's view of the direction:
//
//	Admin tier      lowest priority number first; at one priority Deny before Accept before Pass,
//	                whichever policy it comes from. Deny and Accept are final, Pass ends the tier
//	NetworkPolicy   if any policy isolates the direction: allowed by any rule of an isolating
//	                policy, else denied by isolation. Final either way
//	Baseline tier   like Admin, asked only if no policy isolates this direction; Pass ends it
//	Default         the verdict of the enforcing mode
//
// Invariants:
//   - All of this is resolved before the kernel sees it. The longest matching prefix decides alone,
//     and its entry covers every protocol and port.
//   - except is a subtraction inside its own rule. It never takes from another rule.
//   - The result does not depend on the order of anything in the Input; only Source.Rule does, and
//     it is neither part of a RuleID nor of Rules.Hash.
//   - An entry that says the same as the nearest entry around it is left out.
//   - Ids are stable: an unrelated edit changes no id, short of a collision of 24-bit hashes.
//   - Entries with equal ports share one slice. Rules are read-only once made.
//   - What is not valid (a zero or v4-mapped prefix, a range that ends before it starts, an unknown
//     action) matches nothing and stops nothing else.
//
// The package imports nothing of ours, does no I/O and reports nothing: what is malformed is
// found, counted and reported by whoever builds the Input. It knows nothing of selectors, names
// of ports, domain names, node exemptions, flows or fragments.
package policy
