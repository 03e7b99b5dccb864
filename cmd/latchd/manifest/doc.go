// Package manifest decodes manifests: the objects of package apis from YAML or JSON text of several
// documents, Lists included.
//
// It stands between the watched policy directory and the world. What is wrong is reported by file and
// line, one document never hides another, and an object is returned whole or not at all. Unknown fields
// are tolerated and noted, since the text may be written for a newer version; wrong types, missing names,
// keys given twice and selectors that do not parse are not, since nothing else would catch them without
// an API server. Objects of other kinds are noted and passed over.
//
// An unknown field near a known one of the same mapping is mistyped, and makes its object broken: to leave
// out "podIsolaton" would open pods. Near are names that differ in case only, or in two letters at most;
// in one, if the shorter has four letters or less. The same goes for a kind near one of ours, and for the
// group of one. Status and the inside of a pod's spec are not read, so nothing there is a typo.
//
// It is pure: the same bytes give the same content. Package world judges the values of rules, for objects of every
// origin: what it cannot read is told with its line, and the object is returned all the same.
package manifest
