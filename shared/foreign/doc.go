// Package foreign knows the policy agent that a node may have had before Latch: the node agent of the
// Amazon VPC CNI. It finds what that agent has in force on the node's interfaces, and takes it away.
//
// That agent attaches programs by clsact at priority 1, handle 1, and pins them below
// <bpffs>/globals/aws; it leaves both when it is switched off. Its programs end the chain when they
// allow, so two agents on one interface are one too many: latchd does not start beside it unless told
// to take over.
//
// Taking over goes by interface: only when both programs of Latch are in front on it, which enforce
// does after it has bound the interface to its policy, the other's filters go. Its pins go when it has
// no filter left. There is no instant at which neither judges a packet.
//
// The package attaches nothing, and does not stop the other agent's process.
package foreign
