// Package probe asks a network, with real packets, who reaches whom.
//
// An Endpoint is one address in one network namespace: listeners on the ports that others probe, a
// raw SCTP socket, and a Sniffer that sees every packet delivered to the address. A Prober sends a
// whole round of probes at once, from all endpoints, and then collects for a moment; so a denied
// probe costs no timeout of its own.
//
// A probe is Allowed when its request was seen in the destination's namespace and an answer came
// back to the source: a completed handshake for TCP, an echo for UDP, an INIT ACK for SCTP. It is
// Denied when the request was not seen there. HalfOpen is a request that arrived and an answer that
// did not: never what a policy says, since replies of an allowed flow are allowed.
//
// Every round has a source port of its own, never used again and never a port that is probed. So no
// round finds a flow of an earlier one, and a packet that arrives late is told apart (Late). One that a
// round which the caller keeps had found denied has Escaped: what looked denied was only slow.
//
// TCP probes are sockets of the kernel. SCTP packets are made by hand with a correct checksum, since
// the kernel may be built without SCTP. The package sets up no namespace, interface or route.
package probe
