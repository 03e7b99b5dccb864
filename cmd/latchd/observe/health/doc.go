// Package health says whether latchd is alive and whether the node is as policy says.
//
// Ready means: policy has been read, everything that was there at the start has been verified once,
// the rules of every identifier are the newest, and every attachment is in force by what the kernel
// says. It is one notion, told in three places: /readyz, status.json (which the plugin's STATUS reads
// for the runtime), and the metric latch_ready.
//
// Alive means: the loops that must run do. It says nothing of policy: a restart would not help.
//
// What is no reason not to be ready: an ADD that has not ended or has failed (its pod does not run), an
// interface that is gone (there is nothing to protect; the audit removes what is left), an API server
// that is away (what is known stays in force).
//
// The package only looks. It takes no locks and mends nothing.
package health
