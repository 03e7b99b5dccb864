// Package upgrade has a node change its build under traffic, and back: one with other programs, the one of
// the commit before, and one with another layout of pins. Pods that run, by filters and by links, must not
// notice; pods that start meanwhile, with either plugin, are in force or are told to try again; and what
// others have pinned stays.
package upgrade
