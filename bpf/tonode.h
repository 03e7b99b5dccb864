/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * D8: what a pod sends to its own node passes whatever policy says, if it is for the node and not
 * merely for one of its addresses: a node port leads on to pods, a tunnel anywhere.
 */
#ifndef LATCH_TONODE_H
#define LATCH_TONODE_H

/* Where a packet is judged: a PLACE with the slot for l3, and flags of either function. */
#define WHERE_ANTISPOOF 0x40000
#define WHERE_GUESSED 0x80000
#define WHERE_EXEMPT 0x100000
#define WHERE_SENT 0x200000 /* the packet is one that the pod sends, whoever opened its flow */
#define WHERE(slot, dir, family, flags)                      \
	((slot) | ((dir) == DIR_EGRESS ? PLACE_EGRESS : 0) | \
	 ((family) == FAMILY_V6 ? PLACE_V6 : 0) | (flags))

/* What is judged: ports as they stand, protocol, packet.kind, packet.flags. */
#define WHAT(lport, rport, proto, kind, flags)                                                \
	((__u64)(lport) | (__u64)(rport) << 16 | (__u64)(proto) << 32 | (__u64)(kind) << 40 | \
	 (__u64)(flags) << 48)

struct asked {
	union address remote;
	enum latch_family family;
	enum latch_dir dir;
	__u32 slot;
	__be16 lport;
	__be16 rport;
	__u8 proto;
	__u8 kind;
	__u8 flags;
};

static __always_inline struct asked asked_of(__u32 where, __u64 hi, __u64 lo, __u64 what)
{
	return (struct asked){
		.remote.d = {hi, lo},
		.family = where & PLACE_V6 ? FAMILY_V6 : FAMILY_V4,
		.dir = where & PLACE_EGRESS ? DIR_EGRESS : DIR_INGRESS,
		.slot = where & 0xffff,
		.lport = what,
		.rport = what >> 16,
		.proto = what >> 32,
		.kind = what >> 40,
		.flags = what >> 48,
	};
}

#define SOCKET_LISTENS 10 /* TCP_LISTEN */

/*
 * The state of the node's socket that takes what the pod of the interface sends to remote: one that
 * listens, or the other end of the connection. 0 = none. The hook is in front of the node's
 * translation of addresses, so what is translated finds none.
 */
__attribute__((noinline)) int socket_state(struct __sk_buff *skb, __u32 where, __u64 hi, __u64 lo,
					   __u64 what)
{
	struct asked a = asked_of(where, hi, lo, what);
	struct pod_state *pod = find_pod(skb->ifindex);
	struct bpf_sock_tuple t = {};
	struct bpf_sock *sk;
	__u32 size = sizeof(t.ipv4);
	int state = 1;

	if (!pod)
		return 0;
	if (a.family == FAMILY_V4) {
		t.ipv4.saddr = pod->addr4;
		t.ipv4.daddr = a.remote.v4;
		t.ipv4.sport = a.lport;
		t.ipv4.dport = a.rport;
	} else {
		__builtin_memcpy(t.ipv6.saddr, pod->addr6, sizeof(t.ipv6.saddr));
		__builtin_memcpy(t.ipv6.daddr, a.remote.w, sizeof(t.ipv6.daddr));
		t.ipv6.sport = a.lport;
		t.ipv6.dport = a.rport;
		size = sizeof(t.ipv6);
	}
	if (a.proto == IPPROTO_TCP)
		sk = bpf_skc_lookup_tcp(skb, &t, size, BPF_F_CURRENT_NETNS, 0);
	else
		sk = bpf_sk_lookup_udp(skb, &t, size, BPF_F_CURRENT_NETNS, 0);
	if (!sk)
		return 0;
	if (a.proto == IPPROTO_TCP)
		state = sk->state;
	bpf_sk_release(sk);
	return state;
}

/*
 * D8 for what a pod sends, unless a switch has it judged. SCTP passes, as nobody can be asked for
 * its sockets and the API says that a pod reaches its node. Errors are judged, which the node sends
 * on to whom they are about. A later fragment needs no socket: without its first one, which does,
 * it is of no use. Not 0 = passes.
 */
__attribute__((noinline)) int sent_to_node(struct __sk_buff *skb, __u32 where, __u64 hi, __u64 lo,
					   __u64 what)
{
	struct asked a = asked_of(where, hi, lo, what);
	__u32 zero = 0;
	struct node *n = bpf_map_lookup_elem(&node, &zero);

	if (!n || (n->flags & NODE_F_JUDGE_TO_NODE) || !is_node_addr(&a.remote, a.family))
		return 0;
	if (a.proto == (a.family == FAMILY_V4 ? IPPROTO_ICMP : IPPROTO_ICMPV6))
		return !(a.flags & PKT_ERROR);
	if (a.proto == IPPROTO_SCTP)
		return 1;
	if (a.proto != IPPROTO_TCP && a.proto != IPPROTO_UDP)
		return 0;
	return (a.flags & PKT_LATER) || socket_state(skb, where, hi, lo, what);
}

/*
 * Whether it was the node that gave a packet of the pod to itself its source: the node's address,
 * which the pod cannot use in IPv4, where nobody takes packets from outside that bear it. In IPv6
 * it can, so there only TCP counts, whose connections begin with a SYN that no flow lets pass.
 */
static __always_inline bool is_masqueraded(const struct asked *a)
{
	return (a->family == FAMILY_V4 || a->proto == IPPROTO_TCP) &&
	       is_node_addr(&a->remote, a->family);
}

#endif
