// Package capacity fills a node: as many pods as the largest has, a thousand identifiers, a hundred thousand
// peers, all slots; and has pods come and go for long. It measures time, processor and memory of latchd, and
// requires that what does not fit leaves in force what is, is reported, and goes in when there is room.
package capacity
