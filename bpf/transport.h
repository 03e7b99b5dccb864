/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* L4: ports, TCP flags, and with icmp.h the types of ICMP. */
#ifndef LATCH_TRANSPORT_H
#define LATCH_TRANSPORT_H

#define TCP_HEADER 20
#define UDP_HEADER 8
#define SCTP_HEADER 12
#define ICMP_HEADER 8

#define TCP_FIN 0x01
#define TCP_SYN 0x02
#define TCP_RST 0x04
#define TCP_ACK 0x10

/* The first eight bytes of L4. */
struct l4_head {
	union {
		struct {
			__be16 src;
			__be16 dst;
		};
		struct {
			__u8 type;
			__u8 code;
			__u16 checksum;
			__be16 id;
			__u16 rest;
		} icmp;
	};
};

static __always_inline void set_ports(struct packet *p, const enum latch_dir dir, __be16 src,
				      __be16 dst)
{
	p->lport = dir == DIR_EGRESS ? src : dst;
	p->rport = dir == DIR_EGRESS ? dst : src;
}

static __always_inline bool has_ports(__u8 proto)
{
	return proto == IPPROTO_TCP || proto == IPPROTO_UDP || proto == IPPROTO_SCTP;
}

static __always_inline bool tcp_fits(__be16 offset_flags, __u32 len)
{
	__u32 header = (bpf_ntohs(offset_flags) >> 12) * 4;

	return header >= TCP_HEADER && header <= len;
}

static __always_inline __u8 tcp_flags(__u8 tcp)
{
	return (tcp & (TCP_SYN | TCP_ACK)) == TCP_SYN ? PKT_OPENS : 0;
}

/* Bytes of L4 header that a first fragment must hold and that no later one may overlap. */
static __always_inline __u32 l4_header(__u8 proto)
{
	switch (proto) {
	case IPPROTO_TCP:
		return TCP_HEADER;
	case IPPROTO_UDP:
		return UDP_HEADER;
	case IPPROTO_SCTP:
		return SCTP_HEADER;
	case IPPROTO_ICMP:
	case IPPROTO_ICMPV6:
		return ICMP_HEADER;
	}
	return 0;
}

/* What is found out about L4, as one word: ports as they stand, kind, flags. */
#define L4_WORD(src, dst, kind, flags) \
	((__u64)(src) | (__u64)(dst) << 16 | (__u64)(kind) << 32 | (__u64)(flags) << 40)

/*
 * Ports, TCP flags and ICMP type of a whole packet or a first fragment. A global function, since
 * the verifier would else walk all that follows once for each of its branches.
 */
__attribute__((noinline)) __u64 parse_l4(struct __sk_buff *skb, __u32 offset, __u32 len,
					 __u32 proto, __u32 family)
{
	struct l4_head head;
	__be16 offset_flags;
	__u8 flags = 0, kind;

	if (len < l4_header(proto))
		return L4_WORD(0, 0, 0, PKT_BAD);
	if (!has_ports(proto) && proto != (family == FAMILY_V4 ? IPPROTO_ICMP : IPPROTO_ICMPV6))
		return 0;
	if (bpf_skb_load_bytes(skb, offset, &head, sizeof(head)))
		return L4_WORD(0, 0, 0, PKT_BAD);

	if (!has_ports(proto)) {
		kind = head.icmp.type;
		flags = family == FAMILY_V4 ? icmp4_flags(kind) : icmp6_flags(kind);
		if (flags & PKT_NOFLOW)
			return L4_WORD(0, 0, kind, flags);
		return L4_WORD(head.icmp.id, head.icmp.id, kind, flags);
	}
	if (proto != IPPROTO_TCP)
		return L4_WORD(head.src, head.dst, 0, 0);

	if (bpf_skb_load_bytes(skb, offset + 12, &offset_flags, sizeof(offset_flags)))
		return L4_WORD(0, 0, 0, PKT_BAD);
	if (!tcp_fits(offset_flags, len))
		return L4_WORD(0, 0, 0, PKT_BAD);
	kind = bpf_ntohs(offset_flags);
	return L4_WORD(head.src, head.dst, kind, tcp_flags(kind));
}

/* The same for what nearly every packet is: well-formed TCP or UDP at the usual place. */
static __always_inline bool parse_usual(struct __sk_buff *skb, const enum latch_dir dir,
					const __u32 usual, struct packet *p)
{
	void *head = (void *)(long)skb->data + usual;
	void *end = (void *)(long)skb->data_end;
	__u32 len = p->end - p->l4;
	__be16 *ports = head;

	if (p->flags || p->l4 != usual)
		return false;
	if (p->proto == IPPROTO_TCP) {
		__be16 *offset_flags = head + 12;

		if (len < TCP_HEADER || head + TCP_HEADER > end || !tcp_fits(*offset_flags, len))
			return false;
		p->kind = bpf_ntohs(*offset_flags);
		p->flags = tcp_flags(p->kind);
	} else if (p->proto != IPPROTO_UDP || len < UDP_HEADER || head + UDP_HEADER > end) {
		return false;
	}
	set_ports(p, dir, ports[0], ports[1]);
	return true;
}

/* False = malformed. */
static __always_inline bool parse_transport(struct __sk_buff *skb, const enum latch_dir dir,
					    const enum latch_family family, struct packet *p)
{
	const __u32 usual = ETH_HEADER + (family == FAMILY_V4 ? 20 : 40);
	__u64 word;

	if (parse_usual(skb, dir, usual, p))
		return true;
	word = parse_l4(skb, p->l4, p->end - p->l4, p->proto, family);
	set_ports(p, dir, word, word >> 16);
	p->kind = word >> 32;
	p->flags |= word >> 40;
	return !(p->flags & PKT_BAD);
}

#endif
