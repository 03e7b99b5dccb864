/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * What the rules of a slot say about one peer and one port. User space has flattened policy: the
 * longest matching prefix decides alone, and nothing here knows of tiers, policies or defaults.
 */
#ifndef LATCH_POLICY_H
#define LATCH_POLICY_H

/* Beside the bits of a result: the slot's maps do not hold what the slot says. Never an allow. */
#define RES_INCOMPLETE 0x80000000

/*
 * In the argument "ports" of the judges, beside a port key with port 0: every port of the protocol
 * must be allowed, since the packet's port is not known.
 */
#define PORTS_WHOLE 0x80000000

/* Blocks of a port set are searched in so many halvings: sets of 2^14 blocks. */
#define BLOCK_STEPS 14

/* So many intervals of one protocol are looked at to find all of it allowed; with more it is not.
 */
#define WHOLE_STEPS 256

/*
 * The result of breakpoint pos of a set if all from there to the port key "last" allow, else a
 * denial. Global functions of scalars are walked by the verifier once and not once per call; a
 * kernel before 5.12 takes no pointers there.
 */
__attribute__((noinline)) __u32 whole_result(__u32 slot, __u32 first, __u32 count, __u32 pos,
					     __u32 last)
{
	void *sets = bpf_map_lookup_elem(&portsets, &slot);
	struct port_block *block;
	struct breakpoint *b;
	__u32 index, result = RES_INCOMPLETE;

	if (!sets)
		return RES_INCOMPLETE;
	for (int i = 0; i < WHOLE_STEPS; i++) {
		if (pos >= count)
			return result;
		index = first + pos / PORT_BLOCK;
		block = bpf_map_lookup_elem(sets, &index);
		if (!block)
			return RES_INCOMPLETE;
		b = &block->b[pos % PORT_BLOCK];
		if (b->start > last)
			return result;
		result = b->result;
		if (!(result & RES_ALLOW))
			return result;
		pos++;
	}
	return result & RES_RULE_MASK;
}

/*
 * The result for a port in the set of "count" breakpoints that starts at block "first", or with
 * PORTS_WHOLE the breakpoint that holds it.
 */
__attribute__((noinline)) __u32 search_set(__u32 slot, __u32 first, __u32 count, __u32 ports)
{
	__u32 key = ports & PORT_KEY_MAX;
	__u32 lo = 0, hi = (count + PORT_BLOCK - 1) / PORT_BLOCK;
	struct port_block *block;
	__u32 index, pos;
	void *sets;

	sets = bpf_map_lookup_elem(&portsets, &slot);
	if (!sets || !count)
		return RES_INCOMPLETE;

	for (int i = 0; i < BLOCK_STEPS; i++) {
		__u32 mid = (lo + hi) / 2;

		if (mid == lo)
			break;
		index = first + mid;
		block = bpf_map_lookup_elem(sets, &index);
		if (!block)
			return RES_INCOMPLETE;
		if (block->b[0].start <= key)
			lo = mid;
		else
			hi = mid;
	}
	if (hi - lo > 1)
		return RES_INCOMPLETE;

	index = first + lo;
	block = bpf_map_lookup_elem(sets, &index);
	if (!block)
		return RES_INCOMPLETE;

	pos = 0;
	for (__u32 step = PORT_BLOCK / 2; step; step /= 2) {
		__u32 probe = (pos + step) & (PORT_BLOCK - 1);

		if (block->b[probe].start <= key)
			pos = probe;
	}
	if (block->b[pos].start > key)
		return RES_INCOMPLETE;
	if (ports & PORTS_WHOLE)
		return lo * PORT_BLOCK + pos;
	return block->b[pos].result;
}

static __always_inline __u32 rule_result(const struct rule_val *rule, __u32 slot, __u32 ports)
{
	/* Read at once: the kernel may reuse the element of a rule that is being replaced. */
	struct rule_val v = *rule;
	__u32 key = ports & PORT_KEY_MAX, last = key | 0xffff, found;
	bool whole = ports & PORTS_WHOLE;

	if (v.in & RES_SET) {
		found = search_set(slot, v.a, v.b, ports);
		if (!whole || (found & RES_INCOMPLETE))
			return found;
		return whole_result(slot, v.a, v.b, found, last);
	}
	if (whole) {
		if (v.a <= key && last <= v.b)
			return v.in;
		if (last < v.a || v.b < key)
			return v.out;
		return v.in & v.out & RES_ALLOW ? v.in : v.in & RES_RULE_MASK;
	}
	return v.a <= key && key <= v.b ? v.in : v.out;
}

static __always_inline void mask4(struct rule_key4 *key, __u32 plen, const union address *a)
{
	key->plen = plen;
	key->addr = a->v4 & bpf_htonl(0xffffffff00000000ULL >> (plen & 63));
}

static __always_inline void mask6(struct rule_key6 *key, __u32 plen, const union address *a)
{
	__u64 hi = 0, lo = 0;

	if (plen >= 64) {
		hi = a->d[0];
		if (plen > 64)
			lo = a->d[1] & bpf_cpu_to_be64(~0ULL << ((128 - plen) & 63));
	} else if (plen) {
		hi = a->d[0] & bpf_cpu_to_be64(~0ULL << ((64 - plen) & 63));
	}
	key->plen = plen;
	__builtin_memcpy(key->addr, &hi, sizeof(hi));
	__builtin_memcpy(key->addr + 8, &lo, sizeof(lo));
}

/* Longest prefix first: up to four present lengths by hash, then the trie if the slot has one. */
static __always_inline __u32 judge_slot(__u32 slot, const enum latch_dir dir,
					const enum latch_family family, void *outer_rules,
					void *outer_trie, const union address *remote, __u32 ports)
{
	struct slot *s = bpf_map_lookup_elem(&slots, &slot);
	struct rule_key4 key4;
	struct rule_key6 key6;
	struct rule_val *rule;
	__u32 lens;
	void *inner;

	if (!s)
		return RES_INCOMPLETE;
	lens = *(volatile __u32 *)&s->lens[dir][family];
	if (lens) {
		inner = bpf_map_lookup_elem(outer_rules, &slot);
		if (!inner)
			return RES_INCOMPLETE;
		for (int i = 0; i < MAX_PREFIX_LENS; i++) {
			__u32 plen = lens & 0xff;

			if (!plen)
				break;
			if (family == FAMILY_V4) {
				mask4(&key4, plen - 1, remote);
				rule = bpf_map_lookup_elem(inner, &key4);
			} else {
				mask6(&key6, plen - 1, remote);
				rule = bpf_map_lookup_elem(inner, &key6);
			}
			if (rule)
				goto found;
			lens >>= 8;
		}
	}
	if (!s->trie[dir][family])
		return s->on_miss[dir] & ~RES_INCOMPLETE;

	inner = bpf_map_lookup_elem(outer_trie, &slot);
	if (!inner)
		return RES_INCOMPLETE;
	if (family == FAMILY_V4) {
		mask4(&key4, 32, remote);
		rule = bpf_map_lookup_elem(inner, &key4);
	} else {
		mask6(&key6, 128, remote);
		rule = bpf_map_lookup_elem(inner, &key6);
	}
	if (!rule)
		return s->on_miss[dir] & ~RES_INCOMPLETE;
found:
	return rule_result(rule, slot, ports);
}

/* The judges: one per direction and family, so that each names its maps. */
#define JUDGE4(name, dir, rules, trie)                                                  \
	__attribute__((noinline)) __u32 name(__u32 slot, __be32 addr, __u32 ports)      \
	{                                                                               \
		union address remote = {.v4 = addr};                                    \
                                                                                        \
		return judge_slot(slot, dir, FAMILY_V4, &rules, &trie, &remote, ports); \
	}

#define JUDGE6(name, dir, rules, trie)                                                    \
	__attribute__((noinline)) __u32 name(__u32 slot, __u64 hi, __u64 lo, __u32 ports) \
	{                                                                                 \
		union address remote = {.d = {hi, lo}};                                   \
                                                                                          \
		return judge_slot(slot, dir, FAMILY_V6, &rules, &trie, &remote, ports);   \
	}

JUDGE4(judge_in4, DIR_INGRESS, rules_in4, trie_in4)
JUDGE4(judge_out4, DIR_EGRESS, rules_out4, trie_out4)
JUDGE6(judge_in6, DIR_INGRESS, rules_in6, trie_in6)
JUDGE6(judge_out6, DIR_EGRESS, rules_out6, trie_out6)

/*
 * What the slot says about traffic of the pod in direction dir with a peer; RES_INCOMPLETE, or a
 * result. ports is a port key of the destination, or PORTS_WHOLE.
 */
static __always_inline __u32 judge(__u32 slot, enum latch_dir dir, enum latch_family family,
				   const union address *remote, __u32 ports)
{
	if (family == FAMILY_V4)
		return dir == DIR_EGRESS ? judge_out4(slot, remote->v4, ports) :
					   judge_in4(slot, remote->v4, ports);
	return dir == DIR_EGRESS ? judge_out6(slot, remote->d[0], remote->d[1], ports) :
				   judge_in6(slot, remote->d[0], remote->d[1], ports);
}

/*
 * Whether a slot is whole and no policy bears on it: what cannot be judged passes only there. Not 0
 * = yes.
 */
__attribute__((noinline)) int is_open(__u32 slot)
{
	struct slot *s = bpf_map_lookup_elem(&slots, &slot);

	if (!s || !(s->flags & SLOT_F_COMPLETE))
		return 0;
	return (s->on_miss[DIR_INGRESS] & s->on_miss[DIR_EGRESS] & RES_ALLOW) &&
	       !(s->lens[0][0] | s->lens[0][1] | s->lens[1][0] | s->lens[1][1] | s->trie[0][0] |
		 s->trie[0][1] | s->trie[1][0] | s->trie[1][1]);
}

__attribute__((noinline)) int find_node_addr(__u64 hi, __u64 lo, __u32 family)
{
	union address a = {.d = {hi, lo}};
	struct node_addr key;

	if (family == FAMILY_V6 && !a.d[0] && a.w[2] == bpf_htonl(0xffff))
		return 0; /* IPv6 that looks like an IPv4 address of the node */
	mapped(key.addr, &a, family);
	return !!bpf_map_lookup_elem(&node_addrs, &key);
}

/* Whether an address is one of the node's own. */
static __always_inline bool is_node_addr(const union address *a, enum latch_family family)
{
	return find_node_addr(a->d[0], a->d[1], family);
}

#endif
