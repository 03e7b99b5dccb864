/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Later fragments have no ports and get what their first fragment got. Without a first one (D5)
 * they pass only if the peer is allowed every port of their protocol.
 */
#ifndef LATCH_FRAG_H
#define LATCH_FRAG_H

/* False = the packet has changed under us. */
static __always_inline bool read_frag_key(struct __sk_buff *skb, __u32 place, __u32 pod, __u32 id,
					  __u32 proto, struct frag_key *key)
{
	__builtin_memset(key, 0, sizeof(*key));
	key->pod = pod;
	key->id = id;
	key->dir = !!(place & PLACE_EGRESS);
	if (!(place & PLACE_V6))
		key->proto = proto;
	return !read_addresses(skb, place, key->src, key->dst);
}

/*
 * Remembers what a first fragment got, and returns what to report of it. Denials replace what was
 * there: state is not for the denied.
 */
__attribute__((noinline)) __u64 remember_first(struct __sk_buff *skb, __u32 place, __u32 pod,
					       __u64 proto_id, __u64 verdict)
{
	struct frag value = {
		.stamp = stamp_now(),
		.result = verdict,
		.allow = verdict_of(verdict).allow,
	};
	struct quota *q = find_quota(skb);
	struct frag_key key;

	if (!q || !read_frag_key(skb, place, pod, proto_id, proto_id >> 32, &key))
		return verdict;
	if (!value.allow) {
		bpf_map_update_elem(&frags, &key, &value, BPF_EXIST);
		if (q->frags.spilled)
			bpf_map_update_elem(&frag_spill, &key, &value, BPF_EXIST);
		return verdict;
	}
	if (within_share(&q->frags, pod, value.stamp, SHARE_STAMPS, frag_share)) {
		put(&frags, TABLE_FRAGS, &key, &value);
		return verdict;
	}
	take(&frags, TABLE_FRAGS, &key);
	put(&frag_spill, TABLE_FRAG_SPILL, &key, &value);
	return with_reason(verdict, REASON_OVER_SHARE);
}

/* What the first fragment of a later one got: a verdict word, 0 = not seen. */
__attribute__((noinline)) __u64 recall_first(struct __sk_buff *skb, __u32 place, __u32 pod,
					     __u64 proto_id, __u32 timeout)
{
	struct frag_key key;
	struct frag *first;
	struct quota *q;

	if (!read_frag_key(skb, place, pod, proto_id, proto_id >> 32, &key))
		return 0;
	first = bpf_map_lookup_elem(&frags, &key);
	if (!first) {
		q = find_quota(skb);
		if (q && q->frags.spilled)
			first = bpf_map_lookup_elem(&frag_spill, &key);
	}
	if (!first || !is_live(stamp_now(), first->stamp, timeout))
		return 0;
	if (first->allow)
		return VERDICT_WORD(first->result, REASON_FLOW, 1, 0, 0);
	return VERDICT_WORD(first->result, REASON_FRAGMENT, 0, 0, 0);
}

/* The verdict on a later fragment by its peer and protocol alone. */
__attribute__((noinline)) __u64 decide_later(struct __sk_buff *skb, __u32 where, __u64 hi, __u64 lo,
					     __u64 what)
{
	struct asked a = asked_of(where, hi, lo, what);
	__u32 result =
		judge(a.slot, a.dir, a.family, &a.remote, PORTS_WHOLE | (__u32)a.proto << 16);

	if (result & RES_ALLOW)
		return VERDICT_WORD(result, REASON_POLICY, 1, 0, 0);
	if (a.dir == DIR_EGRESS && sent_to_node(skb, where, hi, lo, what))
		return VERDICT_WORD(result, REASON_NODE, 1, 0, 0);
	return VERDICT_WORD(result, result & RES_INCOMPLETE ? REASON_INCOMPLETE : REASON_FRAGMENT,
			    0, 0, 0);
}

static __always_inline struct verdict judge_later(const struct env *e, const enum latch_dir dir,
						  const enum latch_family family,
						  const struct packet *p)
{
	struct verdict v = {.reason = exemption(e->skb, e->node, dir, family, &p->remote,
						is_cut_again(family, true))};
	__u64 word;

	if (v.reason != REASON_POLICY) {
		v.allow = true;
		return v;
	}
	word = recall_first(e->skb, PLACE(p->l3, dir, family), e->pod->pod, PROTO_ID(p),
			    e->node->timeouts[TIMEOUT_FRAGMENT]);
	if (word)
		return verdict_of(word);

	return verdict_of(decide_later(e->skb, WHERE(e->slot_id, dir, family, 0), p->remote.d[0],
				       p->remote.d[1], WHAT(0, 0, p->proto, 0, PKT_LATER)));
}

#endif
