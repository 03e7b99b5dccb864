// Package flowlog writes a line for each denied packet, and for admitted flows if asked to.
//
// The programs put verdicts into a ring buffer; nothing here can change or delay one. The reader
// continues where the last one stopped, so that a restart loses nothing that the ring has room for.
// What a line needs beyond the event, the pod's name and the policy behind the rule, comes from the
// records; an event that is faster than its records waits a moment for them.
//
// A flood must cost neither a core nor a disk: lines are limited to a rate, of which one pod gets half
// at most, files are rotated at a size, and what is left out is counted by cause, in Stats and in the
// log itself. Kernel counters stay exact, whatever is lost here. With no flow log the programs do not
// make events.
//
// docs/reference/flow-log.md describes the lines; a test compares the two.
package flowlog
