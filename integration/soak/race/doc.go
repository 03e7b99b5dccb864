// Package race has plugin and latchd hammer the same identifiers and their neighbours: ADD and DEL of many
// pods at once over few identifiers, while policies change every few milliseconds, labels move pods from
// one policy to another, and manifests come in any order, some of them twice or out of date.
//
// Meanwhile everything is looked at from outside, without locks: what is pinned is what is attached, what
// is recorded is what the kernel has bound, every pod is judged by traffic when its ADD returns, and pods
// that stay are sent to all the time.
package race
