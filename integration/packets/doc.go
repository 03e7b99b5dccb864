// Package packets sends real packets between network namespaces and requires the verdict of each: what
// the data path owes to traffic whatever policy says, and to whoever tries to get around it. It is
// tests only.
//
// The ground is that of testenv: a node that forwards, its outside, pods on veths. Policy is compiled
// and applied in this process, through the same write path as the plugin's and the watcher's, so that
// a test binary is all it takes to run the suite under another kernel.
//
// All tests run with the programs attached as ADD does it, by clsact. Those that depend on it run once more
// by tcx (options.both): what becomes of a verdict, where a packet came in and whose socket sent it (the
// node, hairpin), and what frames are handed to a hook (tags, other ethertypes, uncut and non-linear
// segments, fragments of stacks, IPv6 on the link). What is left is the same program reading the same
// bytes. LATCH_TEST_ATTACH runs everything in one mode: auto, clsact or tcx.
//
// A packet is denied when the counters say so, with the reason, and it has not arrived; every denial
// stands beside a packet of its kind that arrives. Packets are sent one by one, each when the fate of
// the one before is known. Most tests use mute ends, which own none of their addresses, so that no
// network stack answers to what was crafted; the others let real stacks talk.
//
// What TEST_RUN can show better, since no stack emits it or since it needs a certain CPU or clock, is
// tested beside the programs, in package bpf.
package packets
