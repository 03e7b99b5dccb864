// Package rtnl talks with the kernel about the devices of one network namespace: one socket for as many
// requests as a task has, and one buffer for their answers. netlink of vishvananda opens a socket for each
// request and grows the stack by a buffer for each answer; a plugin that is started once per pod pays for
// that with every pod. Its package nl still writes and takes apart the messages.
//
// Invariants: a Conn stays in the namespace in which it was opened, wherever its user goes; an answer is
// whole or an error; a dump that a change has interrupted is asked for again.
package rtnl
