// Package rules writes the flattened policy of an identifier into the kernel maps of its slot, and
// reads it back.
//
// It stands between the pure compiler (shared/policy) and the write path (shared/enforce), which
// alone calls its writing functions and holds the identifier's lock while it does.
//
// A slot is filled while nothing is bound to it (Fill), or changed while packets are looked up in
// it (Update). Update writes in an order in which every destination sees, at every instant, its
// old or its new longest match: new and changed prefixes are written longest first, the result of
// a miss counts as the shortest prefix of all, then prefixes that are gone are deleted shortest
// first. Port sets are written before the first rule that names them and their blocks are not
// reused while a packet may still be reading them. The order is made by a pure function (plan) so
// that a model test can look at the state after every single write.
//
// The package does not allocate slots, does not touch pod_state and keeps no cache: what it needs
// to know about the kernel's content the caller gets from Read, or keeps from the last Fill or
// Update together with the hash that proves it is still what the kernel holds.
package rules
