/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * The packet that an ICMP error quotes, as the key of the flow that it belongs to. An error goes to
 * the sender of what it quotes: one to the pod must quote a packet of the pod, one from the pod a
 * packet of the peer that the error is for.
 */
#ifndef LATCH_QUOTE_H
#define LATCH_QUOTE_H

static __always_inline bool same_address(const union address *a, const union address *b,
					 const enum latch_family family)
{
	if (family == FAMILY_V4)
		return a->v4 == b->v4;
	return a->d[0] == b->d[0] && a->d[1] == b->d[1];
}

/* False = nothing that could belong to a flow is quoted. The quote may end after its ports. */
static __always_inline bool quoted_key(const struct env *e, const enum latch_dir dir,
				       const enum latch_family family, const struct packet *p,
				       union flow_key *key)
{
	struct packet q = {.l4 = p->l4 + ICMP_HEADER, .end = p->end};
	struct __sk_buff *skb = e->skb;
	union address src = {}, dst = {};
	__be16 ports[2];

	if (family == FAMILY_V4) {
		struct iphdr ip;

		if (q.end - q.l4 < sizeof(ip) || bpf_skb_load_bytes(skb, q.l4, &ip, sizeof(ip)) ||
		    ip.version != 4 || ip.ihl < 5 || (ip.frag_off & bpf_htons(IP4_OFFSET)))
			return false;
		src.v4 = ip.saddr;
		dst.v4 = ip.daddr;
		q.proto = ip.protocol;
		q.l4 += ip.ihl * 4;
	} else {
		struct ipv6hdr ip;

		if (q.end - q.l4 < sizeof(ip) || bpf_skb_load_bytes(skb, q.l4, &ip, sizeof(ip)) ||
		    ip.version != 6)
			return false;
		__builtin_memcpy(&src, &ip.saddr, sizeof(src));
		__builtin_memcpy(&dst, &ip.daddr, sizeof(dst));
		q.proto = ip.nexthdr;
		q.l4 += sizeof(ip);
		if (!parse_ext(skb, &q) || (q.flags & PKT_LATER))
			return false;
	}
	if (!same_address(&src, dir == DIR_INGRESS ? &p->local : &p->remote, family))
		return false;

	if (has_ports(q.proto)) {
		if (q.l4 + sizeof(ports) > q.end ||
		    bpf_skb_load_bytes(skb, q.l4, ports, sizeof(ports)))
			return false;
	} else if (q.proto == (family == FAMILY_V4 ? IPPROTO_ICMP : IPPROTO_ICMPV6)) {
		struct l4_head head;

		if (q.l4 + sizeof(head) > q.end ||
		    bpf_skb_load_bytes(skb, q.l4, &head, sizeof(head)) ||
		    !is_echo(family, head.icmp.type))
			return false;
		ports[0] = ports[1] = head.icmp.id;
	} else {
		ports[0] = ports[1] = 0;
	}
	if (dir == DIR_INGRESS)
		make_key(key, family, e->pod, &src, &dst, ports[0], ports[1], q.proto);
	else
		make_key(key, family, e->pod, &dst, &src, ports[1], ports[0], q.proto);
	return true;
}

#endif
