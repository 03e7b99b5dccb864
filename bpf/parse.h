/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * From a frame to what is judged. Parsing is complete: a packet is either understood as its
 * receiver will understand it, or refused. Nothing is read beyond the length that the IP header
 * gives, and nothing is taken for a port that is none.
 */
#ifndef LATCH_PARSE_H
#define LATCH_PARSE_H

#define ETH_HEADER 14
#define VLAN_TAG 4
#define VLAN_VID 0x0fff
#define MAX_VLAN_TAGS 2
#define MAX_EXT_HEADERS 8

#define IP4_OFFSET 0x1fff
#define IP4_MORE 0x2000
#define IP6_OFFSET 0xfff8
#define IP6_MORE 0x0001

#define TCP_HEADER 20
#define UDP_HEADER 8
#define SCTP_HEADER 12
#define ICMP_HEADER 8

#define TCP_FIN 0x01
#define TCP_SYN 0x02
#define TCP_RST 0x04
#define TCP_ACK 0x10

/* packet.flags */
#define PKT_FIRST 0x1  /* first fragment of several */
#define PKT_LATER 0x2  /* later fragment: no ports */
#define PKT_OPENS 0x4  /* TCP SYN without ACK, ICMP echo request: begins a flow */
#define PKT_NOFLOW 0x8 /* ICMP but echo: judged packet by packet */
#define PKT_ERROR 0x10 /* ICMP error */
#define PKT_BAD 0x80   /* malformed */

union address {
	__be32 v4;
	__be32 w[4];
	__u64 d[2];
};

struct packet {
	union address local; /* the pod's end */
	union address remote;
	__u32 l3;  /* offset of the network header */
	__u32 l4;  /* of the L4 header */
	__u32 end; /* of the IP packet */
	__u32 frag_id;
	__be16 lport;
	__be16 rport;
	__u8 flags;
	__u8 proto;
	__u8 kind; /* TCP flags, or type of ICMP */
};

/* Where in the frame the IP header is and what it is: the scalar that stands for a parsed packet.
 */
#define PLACE_EGRESS 0x10000
#define PLACE_V6 0x20000
#define PLACE(l3, dir, family) \
	((l3) | ((dir) == DIR_EGRESS ? PLACE_EGRESS : 0) | ((family) == FAMILY_V6 ? PLACE_V6 : 0))

/* Reads the addresses once more, IPv4 ones v4-mapped. Not 0 = they are not there. */
static __always_inline int read_addresses(struct __sk_buff *skb, __u32 place, __u8 src[16],
					  __u8 dst[16])
{
	__u32 l3 = place & 0xffff;

	if (place & PLACE_V6)
		return bpf_skb_load_bytes(skb, l3 + 8, src, 16) ||
		       bpf_skb_load_bytes(skb, l3 + 24, dst, 16);
	__builtin_memset(src, 0, 10);
	__builtin_memset(src + 10, 0xff, 2);
	__builtin_memset(dst, 0, 10);
	__builtin_memset(dst + 10, 0xff, 2);
	return bpf_skb_load_bytes(skb, l3 + 12, src + 12, 4) ||
	       bpf_skb_load_bytes(skb, l3 + 16, dst + 12, 4);
}

#include "icmp.h"

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

/* IPv4 as v4-mapped IPv6. */
static __always_inline void mapped(__u8 to[16], const union address *a, enum latch_family family)
{
	__be32 w[4] = {0, 0, bpf_htonl(0xffff), a->v4};

	if (family == FAMILY_V4)
		__builtin_memcpy(to, w, sizeof(w));
	else
		__builtin_memcpy(to, a->w, sizeof(a->w));
}

/*
 * Copies a header of a linear packet, else has the kernel copy it. Only offset "usual" is read
 * directly, which spares the verifier from walking the rest once per possible offset.
 */
#define LOAD(skb, offset, usual, to)                                                  \
	({                                                                            \
		void *__data = (void *)(long)(skb)->data;                             \
		void *__end = (void *)(long)(skb)->data_end;                          \
		int __err = 0;                                                        \
		if ((offset) == (usual) && __data + (usual) + sizeof(*(to)) <= __end) \
			*(to) = *(typeof(to))(__data + (usual));                      \
		else                                                                  \
			__err = bpf_skb_load_bytes(skb, offset, to, sizeof(*(to)));   \
		__err;                                                                \
	})

static __always_inline bool is_vlan(__be16 type)
{
	return type == bpf_htons(ETH_P_8021Q) || type == bpf_htons(ETH_P_8021AD);
}

/*
 * The ethertype, with priority tags (VLAN 0) parsed through; 0 if the frame is of another VLAN or
 * its header does not say what the kernel takes it for. offset is that of the network header.
 */
static __always_inline __be16 parse_ethernet(struct __sk_buff *skb, __u32 *offset)
{
	struct ethhdr *eth = (void *)(long)skb->data;
	__be16 type = skb->protocol;
	__be16 tag[2];

	*offset = ETH_HEADER;
	if ((void *)(eth + 1) > (void *)(long)skb->data_end || eth->h_proto != type)
		return 0;
	if (skb->vlan_present && (skb->vlan_tci & VLAN_VID))
		return 0;
	if (!is_vlan(type))
		return type;
	for (int i = 0; i < MAX_VLAN_TAGS && is_vlan(type); i++) {
		if (bpf_skb_load_bytes(skb, *offset, tag, sizeof(tag)) ||
		    (bpf_ntohs(tag[0]) & VLAN_VID))
			return 0;
		type = tag[1];
		*offset += VLAN_TAG;
	}
	return type;
}

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

static __always_inline void set_addresses(struct packet *p, const enum latch_dir dir,
					  const union address *src, const union address *dst)
{
	p->local = dir == DIR_EGRESS ? *src : *dst;
	p->remote = dir == DIR_EGRESS ? *dst : *src;
}

/*
 * The end of an IP packet, or 0 if its length lies. A length of 0 is one too large for its field,
 * which only the kernel makes, for itself, and cuts up again.
 */
static __always_inline __u32 packet_end(struct __sk_buff *skb, __u32 start, __u32 min, __u32 len,
					bool jumbo)
{
	if (jumbo && skb->gso_size)
		return skb->len;
	if (len < min || start + len > skb->len)
		return 0;
	return start + len;
}

/* False = malformed. */
static __always_inline bool parse_ip4(struct __sk_buff *skb, const enum latch_dir dir, __u32 offset,
				      struct packet *p)
{
	union address src = {}, dst = {};
	struct iphdr ip;
	__u32 frag;

	if (LOAD(skb, offset, ETH_HEADER, &ip) || ip.version != 4 || ip.ihl < 5)
		return false;
	src.v4 = ip.saddr;
	dst.v4 = ip.daddr;
	set_addresses(p, dir, &src, &dst);
	p->proto = ip.protocol;
	p->l3 = offset;
	p->l4 = offset + ip.ihl * 4;
	p->end = packet_end(skb, offset, ip.ihl * 4, bpf_ntohs(ip.tot_len), !ip.tot_len);
	if (!p->end || p->end < p->l4)
		return false;

	frag = bpf_ntohs(ip.frag_off);
	if (frag & (IP4_OFFSET | IP4_MORE)) {
		p->frag_id = ip.id;
		if (frag & IP4_OFFSET) {
			p->flags = PKT_LATER;
			return (frag & IP4_OFFSET) * 8 >= l4_header(p->proto);
		}
		p->flags = PKT_FIRST;
	}
	return parse_transport(skb, dir, FAMILY_V4, p);
}

struct ext_header {
	__u8 next;
	__u8 len;
	__be16 frag; /* of a fragment header; in a routing header: type, segments left */
	__be32 id;
};

static __always_inline bool is_ext(__u8 proto)
{
	return proto == IPPROTO_HOPOPTS || proto == IPPROTO_ROUTING || proto == IPPROTO_FRAGMENT ||
	       proto == IPPROTO_AH || proto == IPPROTO_DSTOPTS;
}

/* Where extension headers end, as one word: offset, protocol, flags, fragment id. */
#define EXT_WORD(offset, proto, flags, id) \
	((__u64)(offset) | (__u64)(proto) << 16 | (__u64)(flags) << 24 | (__u64)(id) << 32)

/*
 * Walks extension headers up to the protocol. What is not one of the known headers is the protocol
 * itself. Source routes count as malformed: they hide where a packet goes.
 */
__attribute__((noinline)) __u64 walk_ext(struct __sk_buff *skb, __u32 offset, __u32 end,
					 __u32 proto)
{
	struct ext_header ext;
	__u32 id = 0, len;
	__u8 flags = 0;

	for (int i = 0; i < MAX_EXT_HEADERS; i++) {
		if (offset + sizeof(ext) > end ||
		    bpf_skb_load_bytes(skb, offset, &ext, sizeof(ext)))
			break;
		len = (ext.len + 1) * 8;
		if (proto == IPPROTO_AH) {
			len = (ext.len + 2) * 4;
		} else if (proto == IPPROTO_ROUTING) {
			if (bpf_ntohs(ext.frag) & 0xff)
				break;
		} else if (proto == IPPROTO_FRAGMENT) {
			len = sizeof(ext);
			if (flags)
				break;
			id = ext.id;
			if (ext.frag & bpf_htons(IP6_OFFSET)) {
				if ((bpf_ntohs(ext.frag) & IP6_OFFSET) < l4_header(ext.next))
					break;
				return EXT_WORD(offset + len, ext.next, PKT_LATER, id);
			}
			if (ext.frag & bpf_htons(IP6_MORE))
				flags = PKT_FIRST;
		}
		proto = ext.next;
		offset += len;
		if (offset > end)
			break;
		if (!is_ext(proto))
			return EXT_WORD(offset, proto, flags, id);
	}
	return EXT_WORD(0, 0, PKT_BAD, 0);
}

/* False = malformed. */
static __always_inline bool skip_ext(struct __sk_buff *skb, struct packet *p)
{
	__u64 word;

	if (!is_ext(p->proto))
		return true;
	word = walk_ext(skb, p->l4, p->end, p->proto);
	p->l4 = word & 0xffff;
	p->proto = word >> 16;
	p->flags = word >> 24;
	p->frag_id = word >> 32;
	return !(p->flags & PKT_BAD) && p->l4 <= p->end;
}

/* False = malformed. */
static __always_inline bool parse_ip6(struct __sk_buff *skb, const enum latch_dir dir, __u32 offset,
				      struct packet *p)
{
	union address src, dst;
	struct ipv6hdr ip;

	if (LOAD(skb, offset, ETH_HEADER, &ip) || ip.version != 6)
		return false;
	__builtin_memcpy(&src, &ip.saddr, sizeof(src));
	__builtin_memcpy(&dst, &ip.daddr, sizeof(dst));
	set_addresses(p, dir, &src, &dst);
	p->proto = ip.nexthdr;
	p->l3 = offset;
	p->l4 = offset + sizeof(ip);
	p->end = packet_end(skb, p->l4, 0, bpf_ntohs(ip.payload_len), !ip.payload_len);
	if (!p->end)
		return false;
	if (!skip_ext(skb, p))
		return false;
	if (p->flags & PKT_LATER)
		return true;
	return parse_transport(skb, dir, FAMILY_V6, p);
}

#endif
