/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * The verdict on a packet without a flow, and anew on a flow whose policy has changed: the rules,
 * and the traffic that rules do not govern.
 *
 * These are global functions of scalars, like the judges: what they find out comes back as a word
 * of which the verifier knows nothing, so that it walks what follows once and not once per verdict.
 */
#ifndef LATCH_DECIDE_H
#define LATCH_DECIDE_H

struct verdict {
	__u32 result;
	__u8 reason;
	__u8 allow;
	__u8 admits;	 /* a flow is to be recorded */
	__u8 flow_flags; /* of that flow */
};

#define VERDICT_WORD(result, reason, allow, admits, flow_flags)                                   \
	((__u64)(result) | (__u64)(reason) << 32 | (__u64)(allow) << 40 | (__u64)(admits) << 48 | \
	 (__u64)(flow_flags) << 56)

static __always_inline __u64 with_reason(__u64 word, __u8 reason)
{
	return (word & ~(0xffULL << 32)) | (__u64)reason << 32;
}

#define PROTO_ID(p) ((__u64)(p)->proto << 32 | (p)->frag_id)

static __always_inline struct verdict verdict_of(__u64 word)
{
	return (struct verdict){
		.result = word,
		.reason = word >> 32,
		.allow = word >> 40,
		.admits = word >> 48,
		.flow_flags = word >> 56,
	};
}

/*
 * value, usable only once seen has been read: an address dependency, which arm64 keeps. A flow must
 * not carry a generation that is newer than the rules it was judged by.
 */
static __always_inline __u32 after(__u32 value, __u32 seen)
{
	__u64 v = value, s = seen;

	asm volatile("%1 ^= %1\n\t%0 += %1" : "+r"(v), "+r"(s));
	return v;
}

/* What the rules say in direction dir; the port is the one that an opener there would name. */
static __always_inline __u32 ask_rules(const struct asked *a, enum latch_dir dir)
{
	__u32 port = 0;

	if (has_ports(a->proto))
		port = bpf_ntohs(dir == DIR_EGRESS ? a->rport : a->lport);
	return judge(a->slot, dir, a->family, &a->remote, (__u32)a->proto << 16 | port);
}

/*
 * Whether the node itself made the packet. Linux also makes packets for others, which do not say of
 * whom; where it may have, only a socket proves that it did not.
 */
static __always_inline bool is_from_node(struct __sk_buff *skb, bool for_others)
{
	return !skb->ingress_ifindex && (!for_others || skb->sk);
}

/*
 * Linux reassembles IPv6 for its conntrack and cuts the packet up again, and the new fragments of a
 * forwarded one do not say where it came in.
 */
static __always_inline bool is_cut_again(enum latch_family family, bool fragment)
{
	return fragment && family == FAMILY_V6;
}

/*
 * Whether a SYN that says neither where it came in nor of a socket is for others: the packet
 * filter's synproxy connects to the pod itself for who has connected to it. Copies that a bridge
 * sends to several ports do not tell of the node's socket either, so it is looked for.
 */
static __always_inline bool is_for_others(struct __sk_buff *skb, __u32 where, __u64 hi, __u64 lo,
					  __u64 what)
{
	int state;

	if ((where & PLACE_EGRESS) || skb->ingress_ifindex || skb->sk)
		return false;
	state = socket_state(skb, where, hi, lo, what);
	return !state || state == SOCKET_LISTENS;
}

/*
 * Traffic into the pod that no policy can cut: of the node itself (D3), or of the pod to itself by
 * way of a service (D2). REASON_POLICY = neither.
 */
static __always_inline __u8 exemption(struct __sk_buff *skb, const struct node *n,
				      enum latch_dir dir, enum latch_family family,
				      const union address *remote, bool for_others)
{
	if (dir != DIR_INGRESS)
		return REASON_POLICY;
	if (is_from_node(skb, for_others))
		return REASON_NODE;
	if (skb->ingress_ifindex == skb->ifindex)
		return REASON_HAIRPIN;
	if ((n->flags & NODE_F_ADDRESS_IS_NODE) && is_node_addr(remote, family))
		return REASON_NODE;
	return REASON_POLICY;
}

/*
 * The verdict on a packet without a flow. TCP that does not begin a connection may belong to one
 * that is older than the table (D7): it passes if either side may have opened it, and is recorded
 * only as opened by its own.
 */
__attribute__((noinline)) __u64 decide_new_packet(struct __sk_buff *skb, __u32 where, __u64 hi,
						  __u64 lo, __u64 what)
{
	struct asked a = asked_of(where, hi, lo, what);
	bool midstream = a.proto == IPPROTO_TCP && !(a.flags & PKT_OPENS);
	bool admits = !midstream || !(a.kind & (TCP_SYN | TCP_RST));
	bool for_others = is_cut_again(a.family, a.flags & PKT_FIRST);
	__u32 zero = 0, own, other;
	struct node *n;
	__u8 reason;

	n = bpf_map_lookup_elem(&node, &zero);
	if (!n)
		return VERDICT_WORD(0, REASON_INCOMPLETE, 0, 0, 0);

	if (a.proto == IPPROTO_TCP && !midstream)
		for_others |= is_for_others(skb, where, hi, lo, what);
	reason = exemption(skb, n, a.dir, a.family, &a.remote, for_others);
	/*
	 * The pod chose the source of what comes back to it, unless spoofing is refused. It must
	 * not be able to make itself a flow to anywhere.
	 */
	if (reason == REASON_HAIRPIN && !(where & WHERE_ANTISPOOF))
		admits = admits && is_masqueraded(&a);
	if (reason != REASON_POLICY)
		return VERDICT_WORD(RES_ALLOW, reason, 1, admits, FLOW_F_EXEMPT);

	own = ask_rules(&a, a.dir);
	if (own & RES_INCOMPLETE)
		return VERDICT_WORD(0, REASON_INCOMPLETE, 0, 0, 0);
	if (!midstream && (own & RES_ALLOW))
		return VERDICT_WORD(own, REASON_POLICY, 1, admits, 0);
	if (!(own & RES_ALLOW) && a.dir == DIR_EGRESS && sent_to_node(skb, where, hi, lo, what))
		return VERDICT_WORD(own, REASON_NODE, 1, admits, FLOW_F_EXEMPT);
	if (!midstream)
		return VERDICT_WORD(own, REASON_POLICY, 0, 0, 0);
	if ((own & RES_ALLOW) && !(a.kind & TCP_SYN))
		return VERDICT_WORD(own, REASON_POLICY, 1, admits, FLOW_F_GUESSED);

	other = ask_rules(&a, !a.dir);
	if (other & RES_ALLOW)
		return VERDICT_WORD(other, REASON_REPLY, 1, 0, 0);
	return VERDICT_WORD(own & RES_RULE_MASK, REASON_POLICY, 0, 0, 0);
}

/*
 * Whether a packet proves that a flow into the pod, which was not admitted by policy, is the node's
 * or the pod's own still: it comes from there, or the node has the socket at the other end.
 * Addresses may have changed hands since, and switches.
 */
static __always_inline bool is_still_exempt(struct __sk_buff *skb, __u32 where, __u64 hi, __u64 lo,
					    __u64 what, const struct asked *a)
{
	__u32 zero = 0;
	struct node *n;
	__u8 reason;

	if (where & WHERE_SENT)
		return sent_to_node(skb, where | PLACE_EGRESS, hi, lo, what);
	n = bpf_map_lookup_elem(&node, &zero);
	if (!n)
		return false;
	reason = exemption(skb, n, DIR_INGRESS, a->family, &a->remote,
			   is_cut_again(a->family, a->flags & PKT_FIRST));
	if (reason == REASON_HAIRPIN)
		return (where & WHERE_ANTISPOOF) || is_masqueraded(a);
	return reason == REASON_NODE;
}

/*
 * The verdict on a flow opened in the direction of "where". One that was met in mid-stream may have
 * been opened by either side; REASON_REPLY then tells that it was the other one.
 */
__attribute__((noinline)) __u64 decide_known_flow(struct __sk_buff *skb, __u32 where, __u64 hi,
						  __u64 lo, __u64 what)
{
	struct asked a = asked_of(where, hi, lo, what);
	__u32 own, other;

	if ((where & WHERE_EXEMPT) && a.dir == DIR_INGRESS && !(a.flags & PKT_ERROR) &&
	    is_still_exempt(skb, where, hi, lo, what, &a))
		return VERDICT_WORD(RES_ALLOW, REASON_NODE, 1, 0, FLOW_F_EXEMPT);
	own = ask_rules(&a, a.dir);
	if (own & RES_INCOMPLETE)
		return VERDICT_WORD(0, REASON_INCOMPLETE, 0, 0, 0);
	if (own & RES_ALLOW)
		return VERDICT_WORD(own, REASON_POLICY, 1, 0, 0);
	if (a.dir == DIR_EGRESS && sent_to_node(skb, where, hi, lo, what))
		return VERDICT_WORD(own, REASON_NODE, 1, 0, FLOW_F_EXEMPT);
	if (where & WHERE_GUESSED) {
		other = ask_rules(&a, !a.dir);
		if (other & RES_ALLOW)
			return VERDICT_WORD(other, REASON_REPLY, 1, 0, 0);
	}
	return VERDICT_WORD(own, REASON_POLICY, 0, 0, 0);
}

static __always_inline struct verdict decide_new(struct __sk_buff *skb, __u32 slot,
						 const enum latch_dir dir,
						 const enum latch_family family, bool antispoof,
						 const struct packet *p)
{
	__u32 where = WHERE(slot, dir, family, antispoof ? WHERE_ANTISPOOF : 0);

	return verdict_of(decide_new_packet(skb, where, p->remote.d[0], p->remote.d[1],
					    WHAT(p->lport, p->rport, p->proto, p->kind, p->flags)));
}

static __always_inline struct verdict decide_flow(struct __sk_buff *skb, __u32 where,
						  const union address *remote, __be16 lport,
						  __be16 rport, __u8 proto, __u8 flags)
{
	return verdict_of(decide_known_flow(skb, where, remote->d[0], remote->d[1],
					    WHAT(lport, rport, proto, 0, flags)));
}

#endif
