// Package rules holds the house rules that a machine can check, as tests: which way imports go, who
// may name the kernel's hooks, who may dump netlink tables, and that every package says what it is.
package rules
