/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* The order in which a packet is asked about: the story of Latch in the kernel. */
#ifndef LATCH_VERDICT_H
#define LATCH_VERDICT_H

#define VERDICT_NEXT -1 /* TC_ACT_UNSPEC: programs behind us still run */
#define VERDICT_DROP 2	/* TC_ACT_SHOT */

/* The only place that knows what the kernel wants to hear. */
static __always_inline int tc_action(bool allow)
{
	return allow ? VERDICT_NEXT : VERDICT_DROP;
}

static __always_inline bool is_spoofed(const struct env *e, const enum latch_family family,
				       const struct packet *p)
{
	if (!(e->pod->flags & POD_F_ANTISPOOF))
		return false;
	if (family == FAMILY_V4)
		return !p->local.v4 || !is_pod_addr(e->pod, &p->local, family);
	if (is_unspecified6(&p->local))
		return !(p->flags & PKT_LINK);
	return !is_link_local(&p->local) && !is_pod_addr(e->pod, &p->local, family);
}

/*
 * Traffic into the pod that no policy can cut: of the node itself (D3), or of the pod to itself by
 * way of a service (D2). REASON_POLICY = neither.
 */
static __always_inline __u8 exemption(const struct env *e, const enum latch_dir dir,
				      const enum latch_family family, const struct packet *p)
{
	if (dir != DIR_INGRESS)
		return REASON_POLICY;
	if (from_node(e, dir))
		return REASON_NODE;
	if (e->skb->ingress_ifindex == e->skb->ifindex)
		return REASON_HAIRPIN;
	if ((e->node->flags & NODE_F_ADDRESS_IS_NODE) && is_node_addr(&p->remote, family))
		return REASON_NODE;
	return REASON_POLICY;
}

/* A packet of a known, live flow. */
static __always_inline void judge_known(const struct env *e, const enum latch_dir dir,
					const enum latch_family family, const struct packet *p,
					const union flow_key *key, struct flow *f,
					struct verdict *v)
{
	v->allow = true;
	if (f->generation != e->generation && !(f->flags & FLOW_F_EXEMPT) &&
	    !rejudge(e, family, key, f, v) && !from_node(e, dir)) {
		v->allow = false;
		return;
	}
	v->reason = REASON_FLOW;
	if (p->flags & PKT_ERROR)
		v->reason = REASON_RELATED;
	else
		touch(e, dir, p, f);
}

/*
 * A packet without a flow. TCP that does not begin a connection may belong to one that is older
 * than the table (D7): it passes if either side may have opened it, and is recorded only as
 * opened by its own.
 */
static __always_inline void judge_new(const struct env *e, const enum latch_dir dir,
				      const enum latch_family family, const struct packet *p,
				      struct verdict *v, __u8 *flags)
{
	__u32 slot = after(e->slot_id, e->generation);
	bool midstream = p->proto == IPPROTO_TCP && !(p->flags & PKT_OPENS);
	__u32 other;

	v->reason = exemption(e, dir, family, p);
	v->admits = !midstream || !(p->tcp & (TCP_SYN | TCP_RST));
	if (v->reason != REASON_POLICY) {
		*flags = FLOW_F_EXEMPT;
		v->result = RES_ALLOW;
		v->allow = true;
		/*
		 * The pod chose the source of what comes back to it, unless spoofing is refused. It
		 * must not be able to make itself a flow to anywhere.
		 */
		if (v->reason == REASON_HAIRPIN && !(e->pod->flags & POD_F_ANTISPOOF))
			v->admits = false;
		return;
	}

	v->result =
		judge(slot, dir, family, &p->remote, port_key(p->proto, dir, p->lport, p->rport));
	v->allow = v->result & RES_ALLOW;
	if (v->result & RES_INCOMPLETE) {
		v->reason = REASON_INCOMPLETE;
		return;
	}
	if (!v->allow && dir == DIR_EGRESS && to_node(e, &p->remote, family)) {
		v->reason = REASON_NODE;
		v->allow = true;
		*flags = FLOW_F_EXEMPT;
		return;
	}
	if (!midstream)
		return;
	*flags = FLOW_F_GUESSED;
	if (v->allow && !(p->tcp & TCP_SYN))
		return;

	other = judge(slot, !dir, family, &p->remote, port_key(p->proto, !dir, p->lport, p->rport));
	v->admits = false;
	v->allow = other & RES_ALLOW;
	if (v->allow) {
		v->result = other;
		v->reason = REASON_REPLY;
	}
}

/* Everything but the parsing. */
static __always_inline void judge_packet(const struct env *e, const enum latch_dir dir,
					 const enum latch_family family, const struct packet *p,
					 struct verdict *v)
{
	bool keyed, known = false;
	union flow_key key;
	struct flow *f;
	__u8 flags = 0;

	if (dir == DIR_EGRESS && is_spoofed(e, family, p)) {
		v->reason = REASON_SPOOF;
		return;
	}
	if (p->flags & PKT_LINK) {
		v->reason = REASON_LINK;
		v->allow = true;
		return;
	}
	if (!(e->slot->flags & SLOT_F_COMPLETE)) {
		v->reason = REASON_INCOMPLETE;
		return;
	}
	if (p->flags & PKT_LATER) {
		v->reason = exemption(e, dir, family, p);
		if (v->reason == REASON_POLICY)
			judge_later(e, dir, family, p, v);
		else
			v->allow = true;
		return;
	}

	keyed = !(p->flags & PKT_NOFLOW);
	if (p->flags & PKT_ERROR)
		keyed = quoted_key(e, dir, family, p, &key);
	else
		make_key(&key, family, e->pod, &p->local, &p->remote, p->lport, p->rport, p->proto);

	/* The rules decide about a TCP connection that begins, whatever the table says (D13). */
	if (keyed && !(p->proto == IPPROTO_TCP && (p->flags & PKT_OPENS))) {
		f = find_flow(&key, family);
		known = f && is_live(e, f->stamp, timeout_of(e->node, p->proto, f->state));
		/* An echo request is no answer either, but must not replace the flow of the other.
		 */
		if (known && !((p->flags & PKT_OPENS) && f->dir != dir)) {
			judge_known(e, dir, family, p, &key, f, v);
			return;
		}
	}

	judge_new(e, dir, family, p, v, &flags);
	v->admits = v->admits && v->allow && !known && !(p->flags & PKT_NOFLOW);
	if (v->admits && !record(e, dir, family, &key, v->result, flags)) {
		v->admits = false;
		if (isolates(e->slot)) {
			v->allow = false;
			v->reason = REASON_TABLE_FULL;
		}
	}
}

static __always_inline int judge_ip(const struct env *e, const enum latch_dir dir,
				    const enum latch_family family, __u32 offset)
{
	struct verdict v = {};
	struct packet p = {};

	if (family == FAMILY_V4 ? parse_ip4(e->skb, dir, offset, &p) :
				  parse_ip6(e->skb, dir, offset, &p)) {
		judge_packet(e, dir, family, &p, &v);
		if (p.flags & PKT_FIRST)
			remember(e, dir, family, &p, &v);
	} else {
		v.reason = REASON_MALFORMED;
		v.allow = (e->slot->flags & SLOT_F_COMPLETE) && !isolates(e->slot);
	}
	if (v.reason != REASON_FLOW)
		report(e, dir, family, &p, &v);
	return tc_action(v.allow);
}

/* Neither IP nor ARP, and so beyond policy: passes only where no policy bears on the pod. */
static __always_inline int judge_other(const struct env *e, const enum latch_dir dir)
{
	bool allow = (e->slot->flags & SLOT_F_COMPLETE) && !isolates(e->slot);
	struct verdict v = {.reason = REASON_ETHERTYPE, .allow = allow};
	struct packet p = {};

	report(e, dir, FAMILY_V6, &p, &v);
	return tc_action(allow);
}

static __always_inline struct pod_state *find_pod(__u32 ifindex)
{
	__u32 index = ifindex & (POD_STATE_SIZE - 1);
	struct pod_state *pod = bpf_map_lookup_elem(&pod_state, &index);

	if (pod && pod->ifindex == ifindex)
		return pod;
	return bpf_map_lookup_elem(&pod_state_hash, &ifindex);
}

static __always_inline int judge_frame(struct __sk_buff *skb, const enum latch_dir dir)
{
	struct env e = {.skb = skb};
	__u32 offset, zero = 0;
	__be16 type;

	type = parse_ethernet(skb, &offset);
	if (type == bpf_htons(ETH_P_ARP))
		return tc_action(true);

	e.pod = find_pod(skb->ifindex);
	if (!e.pod) {
		count(COUNTER_NO_SLOT, dir, REASON_NO_STATE, false);
		return tc_action(false);
	}
	e.slot_id = *(volatile __u32 *)&e.pod->slot;
	e.slot = bpf_map_lookup_elem(&slots, &e.slot_id);
	e.node = bpf_map_lookup_elem(&node, &zero);
	if (!e.slot || !e.node) {
		count(e.slot_id, dir, REASON_INCOMPLETE, false);
		return tc_action(false);
	}
	e.generation = *(volatile __u32 *)&e.slot->generation;
	e.now = stamp_now();

	if (type == bpf_htons(ETH_P_IP))
		return judge_ip(&e, dir, FAMILY_V4, offset);
	if (type == bpf_htons(ETH_P_IPV6))
		return judge_ip(&e, dir, FAMILY_V6, offset);
	return judge_other(&e, dir);
}

#endif
