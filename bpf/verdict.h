/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* The order in which a packet is asked about: the story of Latch in the kernel. */
#ifndef LATCH_VERDICT_H
#define LATCH_VERDICT_H

#define VERDICT_NEXT -1 /* TC_ACT_UNSPEC: programs behind us still run */
#define VERDICT_DROP 2	/* TC_ACT_SHOT */

/* The only place that knows what the kernel wants to hear. */
static __always_inline int tc_action(__u32 allow)
{
	return allow ? VERDICT_NEXT : VERDICT_DROP;
}

static __always_inline bool is_spoofed(const struct env *e, const enum latch_family family,
				       const struct packet *p, bool link)
{
	if (!(e->pod->flags & POD_F_ANTISPOOF))
		return false;
	if (family == FAMILY_V4)
		return !p->local.v4 || !is_pod_addr(e->pod, &p->local, family);
	if (is_unspecified6(&p->local))
		return !link;
	return !is_link_local(&p->local) && !is_pod_addr(e->pod, &p->local, family);
}

/* A packet of a known, live flow. */
static __always_inline void judge_known(const struct env *e, const enum latch_dir dir,
					const enum latch_family family, const struct packet *p,
					const union flow_key *key, struct flow *f, __u32 timeout,
					struct verdict *v)
{
	if (f->generation != e->generation && !rejudge(e, dir, family, p, key, f, v) &&
	    (dir == DIR_EGRESS ||
	     (e->skb->ingress_ifindex != e->skb->ifindex &&			   /* D2 */
	      !is_from_node(e->skb, is_cut_again(family, p->flags & PKT_FIRST))))) /* D3 */
		return;
	v->allow = true;
	v->reason = p->flags & PKT_ERROR ? REASON_RELATED : REASON_FLOW;
	if (v->reason == REASON_FLOW)
		touch(e, dir, p, f, timeout);
}

/* Everything but the parsing. */
static __always_inline void judge_packet(const struct env *e, const enum latch_dir dir,
					 const enum latch_family family, const struct packet *p,
					 struct verdict *v)
{
	bool link = family == FAMILY_V6 && p->proto == IPPROTO_ICMPV6 && (p->flags & PKT_NOFLOW) &&
		    !(p->flags & PKT_FIRST) &&
		    is_discovery(e->skb, PLACE(p->l3, dir, family), p->kind, p->end - p->l4);
	bool keyed, known = false;
	int recorded = 0;
	union flow_key key;
	struct flow *f;
	__u32 timeout;

	if (dir == DIR_EGRESS && is_spoofed(e, family, p, link)) {
		v->reason = REASON_SPOOF;
		return;
	}
	if (link) {
		v->reason = REASON_LINK;
		v->allow = true;
		return;
	}
	if (!(e->slot->flags & SLOT_F_COMPLETE)) {
		v->reason = REASON_INCOMPLETE;
		return;
	}
	if (p->flags & PKT_LATER) {
		*v = judge_later(e, dir, family, p);
		return;
	}

	keyed = !(p->flags & PKT_NOFLOW);
	if (p->flags & PKT_ERROR)
		keyed = quoted_key(e, dir, family, p, &key);
	else
		make_key(&key, family, e->pod, &p->local, &p->remote, p->lport, p->rport, p->proto);

	/* The rules decide about a TCP connection that begins, whatever the table says (D13). */
	if (keyed && !(p->proto == IPPROTO_TCP && (p->flags & PKT_OPENS))) {
		f = find_flow(e, &key, family);
		if (f && is_settled(e, p, f)) {
			v->allow = true;
			v->reason = REASON_FLOW;
			return;
		}
		timeout = f ? timeout_of(e->node, flow_proto(&key, family), f->state) : 0;
		known = f && is_live(e->now, f->stamp, timeout);
		/* An echo request is no answer either, but must not replace the flow of the other.
		 */
		if (known && !((p->flags & PKT_OPENS) && f->dir != dir)) {
			judge_known(e, dir, family, p, &key, f, timeout, v);
			return;
		}
	}

	*v = decide_new(e->skb, after(e->slot_id, e->generation), dir, family,
			e->pod->flags & POD_F_ANTISPOOF, p);
	if (known || (p->flags & PKT_NOFLOW))
		v->admits = false;
	if (v->admits)
		recorded = record(e, dir, family, p, &key, v);
	if (recorded > 0)
		v->reason = REASON_OVER_SHARE;
	if (recorded < 0) {
		v->admits = false;
		v->allow = is_open(e->slot_id);
		if (!v->allow)
			v->reason = REASON_TABLE_FULL;
	}
}

static __always_inline __u64 verdict_word(const struct verdict *v)
{
	return VERDICT_WORD(v->result, v->reason, v->allow, v->admits, v->flow_flags);
}

static __always_inline int judge_ip(const struct env *e, const enum latch_dir dir,
				    const enum latch_family family, __u32 offset)
{
	__u32 place = PLACE(offset, dir, family);
	struct verdict v = {};
	struct packet p = {};

	if (family == FAMILY_V4 ? parse_ip4(e->skb, dir, offset, &p) :
				  parse_ip6(e->skb, dir, offset, &p)) {
		judge_packet(e, dir, family, &p, &v);
		if (p.flags & PKT_FIRST)
			v = verdict_of(remember_first(e->skb, place, e->pod->pod, PROTO_ID(&p),
						      verdict_word(&v)));
	} else {
		v.reason = REASON_MALFORMED;
		v.allow = is_open(e->slot_id);
	}
	if (v.reason != REASON_FLOW)
		report(e->skb, e->slot_id, place, WHAT(p.lport, p.rport, p.proto, 0, 0),
		       verdict_word(&v));
	return tc_action(v.allow);
}

/* What cannot be judged, as it is not IP, or because the pod or its rules are not known. */
static __always_inline int refuse(struct __sk_buff *skb, const enum latch_dir dir, __u32 slot,
				  __u8 reason, bool allow)
{
	report(skb, slot, PLACE(0, dir, FAMILY_V6), 0, VERDICT_WORD(0, reason, allow, 0, 0));
	return tc_action(allow);
}

static __always_inline int judge_frame(struct __sk_buff *skb, const enum latch_dir dir)
{
	struct env e = {.skb = skb};
	__u32 offset, slot_id, zero = 0;
	__be16 type;

	type = parse_ethernet(skb, &offset);
	if (type == bpf_htons(ETH_P_ARP))
		return tc_action(true);

	e.pod = find_pod(skb->ifindex);
	if (!e.pod)
		return refuse(skb, dir, COUNTER_NO_SLOT, REASON_NO_STATE, false);
	/* Not of e itself: what a helper gets the address of lives in memory as a whole. */
	slot_id = *(volatile __u32 *)&e.pod->slot;
	e.slot_id = slot_id;
	e.slot = bpf_map_lookup_elem(&slots, &slot_id);
	e.node = bpf_map_lookup_elem(&node, &zero);
	if (!e.slot || !e.node)
		return refuse(skb, dir, e.slot_id, REASON_INCOMPLETE, false);
	e.generation = *(volatile __u32 *)&e.slot->generation;
	e.now = stamp_now();

	if (type == bpf_htons(ETH_P_IP))
		return judge_ip(&e, dir, FAMILY_V4, offset);
	if (type == bpf_htons(ETH_P_IPV6))
		return judge_ip(&e, dir, FAMILY_V6, offset);
	/* Beyond policy: passes only where no policy bears on the pod. */
	return refuse(skb, dir, e.slot_id, REASON_ETHERTYPE, is_open(e.slot_id));
}

#endif
