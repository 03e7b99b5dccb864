/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Later fragments have no ports and get what their first fragment got. Without a first one (D5)
 * they pass only if the peer is allowed every port of their protocol.
 */
#ifndef LATCH_FRAG_H
#define LATCH_FRAG_H

static __always_inline void frag_key(const struct env *e, const enum latch_dir dir,
				     const enum latch_family family, const struct packet *p,
				     struct frag_key *key)
{
	__builtin_memset(key, 0, sizeof(*key));
	key->pod = e->pod->pod;
	mapped(key->src, dir == DIR_EGRESS ? &p->local : &p->remote, family);
	mapped(key->dst, dir == DIR_EGRESS ? &p->remote : &p->local, family);
	key->id = p->frag_id;
	key->proto = family == FAMILY_V4 ? p->proto : 0;
	key->dir = dir;
}

/* Denials are remembered only where they replace something: state is not for the denied. */
static __always_inline void remember(const struct env *e, const enum latch_dir dir,
				     const enum latch_family family, const struct packet *p,
				     const struct verdict *v)
{
	struct frag value = {.stamp = e->now, .result = v->result, .allow = v->allow};
	struct frag_key key;

	frag_key(e, dir, family, p, &key);
	bpf_map_update_elem(&frags, &key, &value, v->allow ? BPF_ANY : BPF_EXIST);
}

static __always_inline void judge_later(const struct env *e, const enum latch_dir dir,
					const enum latch_family family, const struct packet *p,
					struct verdict *v)
{
	struct frag_key key;
	struct frag *first;

	frag_key(e, dir, family, p, &key);
	first = bpf_map_lookup_elem(&frags, &key);
	if (first && is_live(e, first->stamp, e->node->timeouts[TIMEOUT_FRAGMENT])) {
		v->result = first->result;
		v->allow = first->allow;
		v->reason = v->allow ? REASON_FLOW : REASON_FRAGMENT;
		return;
	}
	v->result = judge(e->slot_id, dir, family, &p->remote, PORTS_WHOLE | (__u32)p->proto << 16);
	v->allow = v->result & RES_ALLOW;
	v->reason = v->allow		       ? REASON_POLICY :
		    v->result & RES_INCOMPLETE ? REASON_INCOMPLETE :
						 REASON_FRAGMENT;
	if (!v->allow && dir == DIR_EGRESS && to_node(e, &p->remote, family)) {
		v->allow = true;
		v->reason = REASON_NODE;
	}
}

#endif
