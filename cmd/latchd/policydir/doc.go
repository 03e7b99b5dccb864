// Package policydir watches a directory of manifests and delivers what is in force: the objects of all
// its *.yaml, *.yml and *.json files. It takes the place of an API server for a node without one.
//
// Files may be created, edited in place, replaced by rename, deleted, or swapped by a symbolic link, of
// a file, of the directory, or of ..data as Kubernetes does it for volumes. Events only say that it is
// time to look: every look asks about all files, and a slow periodic one reads them all and finds what no event
// told, such as an edit behind a symbolic link. Names that start with a dot and subdirectories are passed over;
// a subdirectory with manifests in it is a problem of the snapshot, and so is a file that is named nearly as one, a
// second after it got the name: not the temporary ones of those who replace files.
//
// Nothing is lost by a mistake:
//   - Of a file that cannot be read, or is cut to nothing (which is also how writing in place starts),
//     the last version stays in force.
//   - Of a file with a broken document the other documents take effect, and objects of its last version
//     that are missing now stay in force, since they may be in the broken one.
//   - Of an object with a value that cannot be read, such as an address, the last version stays in force that had
//     none. Without one it is in force as package world reads it, which opens nothing.
//   - While the directory cannot be read, everything stays in force.
//   - Of an object in two files the one in the lexically first file counts.
//   - What is taken out of a file, or with it, stays while another file waits to be read, for 1 s at most: it
//     may have moved there.
//
// Each of these is in the problems of the snapshot, and holds over a restart: what is in force of each file is
// kept in the state directory. If nothing readable is kept of a file that is broken at the first look, the snapshot says
// that something is unread, until the file is whole or gone. Only a deleted file, or a well-formed file without the
// object, takes an object away. A file written in place is read once it was not written for 20 ms; of a writer that
// pauses longer, the first half may be taken for the whole: rename is safe.
//
// Objects of unchanged files keep their pointers from snapshot to snapshot, so that a consumer finds
// what changed at little cost.
package policydir
