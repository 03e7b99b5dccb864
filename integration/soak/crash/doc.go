// Package crash takes away from latch and latchd what they need while they work: their life, at random
// instructions; the processor, from the holder of a lock; their files, their pins, room on the disk,
// descriptors, and calls of the kernel. Each time the pods that are in force have to stay so, a pod that is
// being started has to be in force or refused with an error of CNI, and what was left half done has to be
// whole after the next operation or audit.
//
// The clock is not stepped: it is the machine's.
package crash
