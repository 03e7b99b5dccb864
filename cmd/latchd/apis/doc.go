// Package apis names what the watcher's sources of policy hand on: objects of the kinds that matter
// here, references to them, and problems found in them. A source is a directory of manifests or an API
// server; the consumer is package world. Nothing here decodes, selects or decides.
package apis
