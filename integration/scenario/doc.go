// Package scenario reads conformance scenarios: files of pure data that hold pods, policies, the
// endpoints objects a controller made of them, and the verdict of every pod-to-pod probe, step by
// step. The format is described in the README beside the scenarios.
//
// Parse checks everything a later stage relies on (letters, sizes, names), so that a broken file is
// an error that names the file and the step, never a panic or a silently skipped cell. State turns
// step i into what the world looks like after it; Documents writes that world the way an operator
// would write it to a policy directory.
//
// The package touches no kernel and no process.
package scenario
