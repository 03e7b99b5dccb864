/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Flows: one entry for both directions, keyed by the pod's end and the remote end. An entry that
 * has expired is no entry; nobody needs to delete it.
 */
#ifndef LATCH_FLOW_H
#define LATCH_FLOW_H

/* A stamp is written again when this old (about a second), or half its timeout. */
#define STAMP_FRESH 64

/* What a packet is judged with. */
struct env {
	struct __sk_buff *skb;
	struct pod_state *pod;
	struct slot *slot;
	struct node *node;
	__u32 slot_id;
	__u32 generation; /* of the slot, read before its rules */
	__u32 now;
};

union flow_key {
	struct flow_key4 v4;
	struct flow_key6 v6;
};

static __always_inline __u16 fold(const union address *a, const enum latch_family family)
{
	__u32 w = family == FAMILY_V4 ? a->v4 : a->w[0] ^ a->w[1] ^ a->w[2] ^ a->w[3];
	__u16 folded = w ^ (w >> 16);

	return folded ? folded : 1;
}

static __always_inline bool is_pod_addr(const struct pod_state *pod, const union address *a,
					const enum latch_family family)
{
	const union address *own = (const union address *)pod->addr6;

	if (family == FAMILY_V4)
		return a->v4 == pod->addr4;
	return a->d[0] == own->d[0] && a->d[1] == own->d[1];
}

static __always_inline void make_key(union flow_key *key, const enum latch_family family,
				     const struct pod_state *pod, const union address *local,
				     const union address *remote, __be16 lport, __be16 rport,
				     __u8 proto)
{
	__u16 fold_local = is_pod_addr(pod, local, family) ? 0 : fold(local, family);

	if (family == FAMILY_V4) {
		key->v4 = (struct flow_key4){
			.pod = pod->pod,
			.remote = remote->v4,
			.lport = lport,
			.rport = rport,
			.proto = proto,
			.local = fold_local,
		};
		return;
	}
	key->v6 = (struct flow_key6){
		.pod = pod->pod,
		.lport = lport,
		.rport = rport,
		.proto = proto,
		.local = fold_local,
	};
	__builtin_memcpy(key->v6.remote, remote->w, sizeof(key->v6.remote));
}

static __always_inline __u8 flow_proto(const union flow_key *key, const enum latch_family family)
{
	return family == FAMILY_V4 ? key->v4.proto : key->v6.proto;
}

/* False = no flow of the pod can be in the spill tables. */
static __always_inline bool has_spilled(const struct env *e)
{
	__u32 index = e->skb->ifindex & (POD_STATE_SIZE - 1);
	struct share *s = bpf_map_lookup_elem(&shares, &index);

	return s && s->spilled && s->pod == e->pod->pod;
}

static __always_inline struct flow *find_flow(const struct env *e, const union flow_key *key,
					      const enum latch_family family)
{
	struct flow *f;

	f = family == FAMILY_V4 ? bpf_map_lookup_elem(&flows4, &key->v4) :
				  bpf_map_lookup_elem(&flows6, &key->v6);
	if (f || !has_spilled(e))
		return f;
	return family == FAMILY_V4 ? bpf_map_lookup_elem(&spill4, &key->v4) :
				     bpf_map_lookup_elem(&spill6, &key->v6);
}

static __always_inline __u32 timeout_of(const struct node *node, __u8 proto, __u8 state)
{
	__u32 i = TIMEOUT_OTHER;

	if (proto == IPPROTO_TCP)
		i = TIMEOUT_TCP_SYN + (state <= FLOW_CLOSING ? state : FLOW_CLOSING);
	else if (proto == IPPROTO_UDP)
		i = state == FLOW_NEW ? TIMEOUT_UDP : TIMEOUT_UDP_ANSWERED;
	return node->timeouts[i & 7];
}

/*
 * Stamps of other CPUs may be ahead of this one's clock, but not by much: one that seems to be so
 * is older than the 1.14 years of half a wrap. Not 0 = live.
 */
__attribute__((noinline)) int is_live(__u32 now, __u32 stamp, __u32 timeout)
{
	return now - stamp + STAMP_FRESH <= timeout + STAMP_FRESH;
}

/*
 * Whether there is nothing to do but to pass: an answered flow of this generation whose last stamp
 * is fresh, which is nearly every packet. A timeout therefore has no effect before STAMP_FRESH.
 */
static __always_inline bool is_settled(const struct env *e, const struct packet *p,
				       const struct flow *f)
{
	return !p->flags && !(p->kind & (TCP_FIN | TCP_RST)) && f->generation == e->generation &&
	       f->state == FLOW_ESTABLISHED && e->now - f->stamp < STAMP_FRESH;
}

/*
 * When a denied flow became one: with the last change of the slot. Or, if it passed since, with the
 * move of its pod to that slot, of which is known that the flow's last packet was before it; its
 * stamp is older than that by up to STAMP_FRESH.
 */
__attribute__((noinline)) __u32 denied_since(__u32 now, __u32 changed_at, __u32 stamp)
{
	if (now - stamp + STAMP_FRESH < now - changed_at + STAMP_FRESH)
		return stamp + STAMP_FRESH;
	return changed_at;
}

/*
 * Judges a flow again, in the direction in which it was opened, since policy has changed. What is
 * still allowed takes over the new generation; what is denied gets a time after which it is cut,
 * and keeps the old generation, so that it is judged again should policy change back.
 * False = drop, for the reason in v.
 */
static __always_inline bool rejudge(const struct env *e, const enum latch_dir packet_dir,
				    const enum latch_family family, const struct packet *p,
				    const union flow_key *key, struct flow *f, struct verdict *v)
{
	enum latch_dir dir = f->dir == DIR_EGRESS ? DIR_EGRESS : DIR_INGRESS;
	__u32 where = WHERE(after(e->slot_id, e->generation), dir, family,
			    packet_dir == DIR_EGRESS ? WHERE_SENT : 0);
	union address remote = {};

	/* Products, as each branch would double what the verifier walks. */
	where |= (f->flags & FLOW_F_GUESSED) * (WHERE_GUESSED / FLOW_F_GUESSED);
	where |= (f->flags & FLOW_F_EXEMPT) * (WHERE_EXEMPT / FLOW_F_EXEMPT);
	where |= (e->pod->flags & POD_F_ANTISPOOF) * (WHERE_ANTISPOOF / POD_F_ANTISPOOF);

	if (family == FAMILY_V4) {
		remote.v4 = key->v4.remote;
		*v = decide_flow(e->skb, where, &remote, key->v4.lport, key->v4.rport,
				 key->v4.proto, p->flags);
	} else {
		__builtin_memcpy(remote.w, key->v6.remote, sizeof(remote.w));
		*v = decide_flow(e->skb, where, &remote, key->v6.lport, key->v6.rport,
				 key->v6.proto, p->flags);
	}
	if (v->allow) {
		f->dir = v->reason == REASON_REPLY ? !dir : dir;
		f->flags = (f->flags & ~FLOW_F_CUT) | v->flow_flags;
		f->result = v->result;
		f->generation = e->generation;
		return true;
	}
	if (v->reason == REASON_INCOMPLETE)
		return false;
	if (!(f->flags & FLOW_F_CUT)) {
		f->cut_at = e->node->timeouts[TIMEOUT_GRACE];
		/* The other side of an exempt flow gets time to prove that it is one still. */
		if (packet_dir == DIR_EGRESS && dir == DIR_INGRESS && (f->flags & FLOW_F_EXEMPT))
			f->cut_at += e->now + STAMP_FRESH;
		else
			f->cut_at += denied_since(e->now, e->slot->changed_at, f->stamp);
		f->flags |= FLOW_F_CUT;
	}
	v->reason = REASON_CUT;
	return f->cut_at - e->now - 1 < e->node->timeouts[TIMEOUT_GRACE] + 2 * STAMP_FRESH;
}

/* What a packet changes in its flow. */
static __always_inline void touch(const struct env *e, const enum latch_dir dir,
				  const struct packet *p, struct flow *f, __u32 timeout)
{
	const __u8 fin = dir == DIR_EGRESS ? FLOW_F_FIN_LOCAL : FLOW_F_FIN_REMOTE;
	const __u8 fins = FLOW_F_FIN_LOCAL | FLOW_F_FIN_REMOTE;
	__s32 age = e->now - f->stamp;

	if (age >= STAMP_FRESH || age > (__s32)(timeout / 2))
		f->stamp = e->now;
	if (f->state == FLOW_NEW && f->dir != dir) {
		f->state = FLOW_ESTABLISHED;
		f->stamp = e->now;
	}
	if (p->proto != IPPROTO_TCP || !(p->kind & (TCP_FIN | TCP_RST)))
		return;
	f->stamp = e->now;
	if ((p->kind & TCP_FIN) && !(f->flags & fin))
		f->flags |= fin;
	if ((p->kind & TCP_RST) || (f->flags & fins) == fins)
		f->state = FLOW_CLOSING;
}

/* A flow to be recorded: ports, protocol and fold of its key, its flags; generation and result. */
#define RECORD_EGRESS (1ULL << 62)
#define RECORD_V6 (1ULL << 63)
#define RECORD_WHAT(k, dir, family, flags)                                                      \
	((k).lport | (__u64)(k).rport << 16 | (__u64)(k).proto << 32 | (__u64)(k).local << 40 | \
	 (__u64)((flags) & 0x3f) << 56 | ((dir) == DIR_EGRESS ? RECORD_EGRESS : 0) |            \
	 ((family) == FAMILY_V6 ? RECORD_V6 : 0))

/*
 * Global, so that its memory is not part of that of what calls more deeply. 0 = recorded, 1 =
 * beyond the pod's share.
 */
__attribute__((noinline)) int record_flow(struct __sk_buff *skb, __u64 hi, __u64 lo, __u64 what,
					  __u64 origin)
{
	__u32 index = skb->ifindex & (POD_STATE_SIZE - 1);
	struct share *s = bpf_map_lookup_elem(&shares, &index);
	struct pod_state *pod = find_pod(skb->ifindex);
	union address remote = {.d = {hi, lo}};
	union flow_key key;
	struct flow f = {
		.stamp = stamp_now(),
		.generation = origin >> 32,
		.result = origin,
		.dir = what & RECORD_EGRESS ? DIR_EGRESS : DIR_INGRESS,
		.state = FLOW_NEW,
		.flags = (what >> 56) & 0x3f,
	};
	bool within;

	if (!pod || !s)
		return -1;
	within = within_share(s, pod->pod, f.stamp, SHARE_STAMPS,
			      what & RECORD_V6 ? flow_share6 : flow_share4);
	if (what & RECORD_V6) {
		key.v6 = (struct flow_key6){
			.pod = pod->pod,
			.lport = what,
			.rport = what >> 16,
			.proto = what >> 32,
			.local = what >> 40,
		};
		__builtin_memcpy(key.v6.remote, remote.w, sizeof(key.v6.remote));
		if (within)
			return put(&flows6, TABLE_FLOWS6, &key.v6, &f);
		take(&flows6, TABLE_FLOWS6, &key.v6);
		return put(&spill6, TABLE_SPILL6, &key.v6, &f) ? -1 : 1;
	}
	key.v4 = (struct flow_key4){
		.pod = pod->pod,
		.remote = remote.v4,
		.lport = what,
		.rport = what >> 16,
		.proto = what >> 32,
		.local = what >> 40,
	};
	if (within)
		return put(&flows4, TABLE_FLOWS4, &key.v4, &f);
	take(&flows4, TABLE_FLOWS4, &key.v4);
	return put(&spill4, TABLE_SPILL4, &key.v4, &f) ? -1 : 1;
}

/* Records a flow, over whatever its key held. Below 0 = it could not be recorded. */
static __always_inline int record(const struct env *e, const enum latch_dir dir,
				  const enum latch_family family, const struct packet *p,
				  const union flow_key *key, const struct verdict *v)
{
	__u64 what = family == FAMILY_V4 ? RECORD_WHAT(key->v4, dir, family, v->flow_flags) :
					   RECORD_WHAT(key->v6, dir, family, v->flow_flags);

	return record_flow(e->skb, p->remote.d[0], p->remote.d[1], what,
			   (__u64)e->generation << 32 | v->result);
}

#endif
