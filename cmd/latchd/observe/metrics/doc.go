// Package metrics is what Prometheus gets to know of a node. docs/reference/metrics.md lists it all; a
// test compares the two.
//
// Drops and allows come from the kernel's counters, which the programs keep per rule set of an
// identifier, whether or not anybody logs flows. Counters are deleted when a rule set is given back,
// and sets are given back whenever policy changes by much. So totals are kept here: each reading adds
// what a counter has grown, and one is made just before counters are deleted (Metrics.FreeCounters).
// Totals never go backwards while the process lives, and begin with 0 when it starts: what was dropped
// while it was down is not in them.
//
// Invariants: the number of series is bounded, whatever pods and policies come and go (see Detail);
// a scrape takes no lock that a writer or a packet waits for, and its cost does not grow with traffic;
// what costs time (interfaces, flow tables) is looked at in the background.
//
// The package changes nothing and decides nothing: readiness is package health's.
package metrics
