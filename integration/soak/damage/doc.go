// Package damage breaks, one after the other, everything of a running node that can be broken by hand:
// programs, links, pins, elements of maps, records, locks, and puts programs of others in front of ours
// and behind. latchd's audit has to find each within a period, mend it and say so, and traffic judged
// before and after has to be judged alike. What belongs to others has to be left alone.
//
// While something is broken, datagrams that no policy allows are sent all the time. Only taking our
// programs off an interface lets them through, until the audit has put them back; everything else must
// fail closed.
package damage
