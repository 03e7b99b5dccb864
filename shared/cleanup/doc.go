// Package cleanup takes Latch off a node: attachments by the one write path (shared/enforce), then the
// filters that no record names, pins of every layout, records and locks. Pods keep running and are open
// then.
//
// It works with anything missing, and may be called again at any time. It does not touch the CNI
// configuration, the plugin's binary or logs, and it does not stop latchd: whoever calls it has done
// that, since either would begin anew.
package cleanup
