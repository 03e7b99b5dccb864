/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * The packet that an ICMP error quotes, as the key of the flow that it belongs to. An error goes to
 * the sender of what it quotes: one to the pod must quote a packet of the pod, one from the pod a
 * packet of the peer that the error is for.
 */
#ifndef LATCH_QUOTE_H
#define LATCH_QUOTE_H

#define QUOTE_OK 0x10000000000ULL

/*
 * Ports and protocol of the quoted packet and QUOTE_OK, or 0 if nothing that could belong to a flow
 * is quoted. The quote may end after its ports.
 */
__attribute__((noinline)) __u64 read_quote(struct __sk_buff *skb, __u32 l3, __u32 l4, __u32 end,
					   __u32 family)
{
	struct packet q = {.l4 = l4 + ICMP_HEADER, .end = end};
	union address outer = {}, inner = {};
	struct l4_head head;
	__be16 ports[2] = {};

	if (family == FAMILY_V4) {
		struct iphdr ip;

		if (q.l4 + sizeof(ip) > end || bpf_skb_load_bytes(skb, q.l4, &ip, sizeof(ip)) ||
		    ip.version != 4 || ip.ihl < 5 || (ip.frag_off & bpf_htons(IP4_OFFSET)))
			return 0;
		if (bpf_skb_load_bytes(skb, l3 + 16, &outer, sizeof(outer.v4)) ||
		    outer.v4 != ip.saddr)
			return 0;
		q.proto = ip.protocol;
		q.l4 += ip.ihl * 4;
	} else {
		struct ipv6hdr ip;

		if (q.l4 + sizeof(ip) > end || bpf_skb_load_bytes(skb, q.l4, &ip, sizeof(ip)) ||
		    ip.version != 6)
			return 0;
		__builtin_memcpy(&inner, &ip.saddr, sizeof(inner));
		if (bpf_skb_load_bytes(skb, l3 + 24, &outer, sizeof(outer)) ||
		    outer.d[0] != inner.d[0] || outer.d[1] != inner.d[1])
			return 0;
		q.proto = ip.nexthdr;
		q.l4 += sizeof(ip);
		if (!skip_ext(skb, &q) || (q.flags & PKT_LATER))
			return 0;
	}

	if (has_ports(q.proto)) {
		if (q.l4 + sizeof(ports) > end ||
		    bpf_skb_load_bytes(skb, q.l4, ports, sizeof(ports)))
			return 0;
	} else if (q.proto == (family == FAMILY_V4 ? IPPROTO_ICMP : IPPROTO_ICMPV6)) {
		if (q.l4 + sizeof(head) > end ||
		    bpf_skb_load_bytes(skb, q.l4, &head, sizeof(head)) ||
		    !is_echo(family, head.icmp.type))
			return 0;
		ports[0] = ports[1] = head.icmp.id;
	}
	return QUOTE_OK | (__u64)ports[0] | (__u64)ports[1] << 16 | (__u64)q.proto << 32;
}

/* False = the error is about no flow. */
static __always_inline bool quoted_key(const struct env *e, const enum latch_dir dir,
				       const enum latch_family family, const struct packet *p,
				       union flow_key *key)
{
	__u32 to = p->l4 + ICMP_HEADER + (family == FAMILY_V4 ? 16 : 24);
	union address dst = {};
	__u64 quote;

	quote = read_quote(e->skb, p->l3, p->l4, p->end, family);
	if (!quote || bpf_skb_load_bytes(e->skb, to, &dst, family == FAMILY_V4 ? 4 : 16))
		return false;
	if (dir == DIR_INGRESS)
		make_key(key, family, e->pod, &p->local, &dst, quote, quote >> 16, quote >> 32);
	else
		make_key(key, family, e->pod, &dst, &p->remote, quote >> 16, quote, quote >> 32);
	return true;
}

#endif
