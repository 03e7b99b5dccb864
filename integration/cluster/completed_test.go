package cluster

import "testing"

// testCompleted gives the address of a pod that has completed, and is still listed by its policy, to a
// live one: the live one has its own policy.
func testCompleted(t *testing.T, cp *controlPlane) {
	n := newNode(t, cp, nodeOptions{args: []string{"--audit-period", "1s"}})
	a := n.pod("a", object{"app": "a"}).add()
	shut := n.newPolicy("shut", object{"app": "shut"})
	shut.apply()
	for _, c := range []struct{ completed, live, want string }{{"shut", "open", allow}, {"open", "shut", deny}} {
		job := n.pod("job-"+c.completed, object{"app": c.completed}).add()
		shut.lists(job).applyEndpoint()
		n.must(cp.merge(job.path()+"/status", object{"status": object{"phase": "Succeeded"}}))
		job.del()
		live := n.pod("live-"+c.live, object{"app": c.live})
		live.addrs = job.addrs
		live.add()
		a.stays("live pod with the address of one that has completed", c.want, live, 8080, 2)
		n.labelNamespace(object{"touched": c.live})
		shut.lists(job, live).applyEndpoint()
		a.becomes("after more events", c.want, live, 8080)
		live.del()
		live.forget()
		job.forget()
	}
}
