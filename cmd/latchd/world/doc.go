// Package world knows the objects that decide about the node's pods, and answers what the rules of each
// identifier should be: package policydir or informers put objects in, package reconcile asks for
// Desired and hands it to the compiler and the write path. It is pure but for the clock, and safe for
// concurrent use; it never touches the kernel.
//
// # Selection (D14, D16)
//
// A policy selects by the selector of its own object, which is found by policyRef and the kind in the
// owner references, never by the copy in its endpoints objects. Selection is decided per identifier.
//
//   - Without the policy object the endpoints objects are all there is: if one pod of the identifier is
//     listed, all are selected; else spec.podSelector (or spec.subject) speaks for pods that have not
//     been listed yet. A pod that was listed and is not any more is deselected, unless it terminates.
//   - A policy object that was known and is gone selects as before for a grace of 5 s, since watches are
//     not ordered; then the endpoints objects that outlive it select nothing. With an API server, also
//     one that was never known, and only when the server says that it does not have the object: a watch
//     that lags or hangs tells the same as one without news. An endpoints object that is written then is
//     word of a policy that is not known yet.
//   - A pod without a manifest, known only by being listed, has its name for an identifier and is
//     selected by being listed, or by an empty selector.
//
// # Rules
//
// All endpoints objects of one policy are one policy: union of rules and of podIsolation, or of none the
// policy's types and their default (D11). Each object is converted once, when it changes, and shared by
// all identifiers. What cannot be read is reported and opens nothing (D19): as a rule of a policy that only
// allows, or an Accept rule, it is left out. In a cluster policy other rules would decide instead of a Deny or
// Pass rule, so that becomes a Deny rule for every port or address that it may have meant; an unknown action is
// Deny, and of an object of unknown tier or priority only the Deny rules count, before all others.
//
// # Time
//
// Create is for pods being created: everything known, at once. Running is for pods that run. They
// differ only while something below says so.
//
//   - A direction of a running identifier that no policy isolates yet is isolated only when the first
//     policy that wants to has been quiet for 500 ms (5 s at most, D6). Once it is isolated every further
//     policy can only allow more, and applies at once, as every policy does in strict mode. A policy
//     that arrived long ago and selects now, after an edit of labels, applies at once too.
//   - Additions apply at once. Rules that an endpoints object loses stay in force until the policy has
//     been quiet for 500 ms (5 s at most from the loss), because the controller may be moving them to
//     another object. A policy that has a single endpoints object is not waited for.
//   - A policy that loses all its endpoints objects while its own object exists keeps the last rules, for
//     as long as that lasts, and is reported as pending: the controller never does that on purpose. When
//     they come back one by one, the rules that do not are dropped after the quiet period.
//   - A policy whose own object is gone loses nothing until it goes as a whole: with its last endpoints
//     object, or by the grace above. A policy that goes, or that does not select any more, is gone for
//     running pods at once.
//   - A policy whose endpoints objects have never been seen (D15) isolates pods being created as its
//     policyTypes say, without rules, and is pending. A running pod keeps what it has. A cluster policy
//     has no such types: for pods being created it denies everything in the directions in which it has
//     Deny rules, at its own place in the order. What was created under it so stays so.
//   - After a restart what runs has what the earlier run wrote, as its record tells, until rules of this
//     one are in the kernel. A direction that was isolated stays so if any policy wants it, pending or
//     not. While a policy is pending whose rules were in force, nobody knows them: Desired says
//     HoldRunning, and what runs should be left alone.
//
// Every change returns the identifiers that it affects, some perhaps in vain, and Run does so when
// something is due.
package world
