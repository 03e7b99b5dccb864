// latchctl is the operator's CLI of Latch: what is in force on this node right now, for which pod, by
// which policy, and why a flow would be allowed or denied.
//
// It answers from the kernel, not from what latchd means to do: all but cleanup only read, take no
// lock, and work with latchd down. One file holds one command; what is read is in shared/view.
package main

import "os"

var version = "unknown"

func main() { os.Exit(run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr)) }
