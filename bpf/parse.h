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
#define PKT_LINK 0x20  /* neighbour or multicast listener discovery on the link */

union address {
	__be32 v4;
	__be32 w[4];
	__u64 d[2];
};

struct packet {
	union address local; /* the pod's end */
	union address remote;
	__u32 l4;  /* offset of the L4 header */
	__u32 end; /* of the IP packet */
	__u32 frag_id;
	__be16 lport;
	__be16 rport;
	__u16 flags;
	__u8 proto;
	__u8 tcp;
	__u8 hops;
};

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
static __always_inline void mapped(__u8 to[16], const union address *a,
				   const enum latch_family family)
{
	__be32 w[4] = {0, 0, bpf_htonl(0xffff), a->v4};

	__builtin_memcpy(to, family == FAMILY_V4 ? w : a->w, 16);
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

#include "icmp.h"

/* Ports, TCP flags and ICMP type of a whole packet or a first fragment. False = malformed. */
static __always_inline bool parse_l4(struct __sk_buff *skb, const enum latch_dir dir,
				     const enum latch_family family, struct packet *p)
{
	const __u32 usual = ETH_HEADER + (family == FAMILY_V4 ? 20 : 40);
	__u32 len = p->end - p->l4;
	struct l4_head head;
	__be16 offset_flags;

	if (len < l4_header(p->proto))
		return false;
	if (!l4_header(p->proto) ||
	    p->proto == (family == FAMILY_V4 ? IPPROTO_ICMPV6 : IPPROTO_ICMP))
		return true;
	if (LOAD(skb, p->l4, usual, &head))
		return false;
	if (has_ports(p->proto)) {
		set_ports(p, dir, head.src, head.dst);
	} else {
		if (family == FAMILY_V4)
			parse_icmp4(p, &head);
		else
			parse_icmp6(skb, dir, p, &head);
		return true;
	}
	if (p->proto != IPPROTO_TCP)
		return true;

	if (LOAD(skb, p->l4 + 12, usual + 12, &offset_flags))
		return false;
	offset_flags = bpf_ntohs(offset_flags);
	if ((offset_flags >> 12) * 4 < TCP_HEADER || (offset_flags >> 12) * 4 > len)
		return false;
	p->tcp = offset_flags;
	if ((p->tcp & (TCP_SYN | TCP_ACK)) == TCP_SYN)
		p->flags |= PKT_OPENS;
	return true;
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
	return parse_l4(skb, dir, FAMILY_V4, p);
}

struct ext_header {
	__u8 next;
	__u8 len;
	__be16 frag; /* of a fragment header; in a routing header: type, segments left */
	__be32 id;
};

/*
 * Walks extension headers up to the protocol. What is not one of the known headers is the protocol
 * itself. False = malformed; that includes source routes, which hide where a packet goes.
 */
static __always_inline bool parse_ext(struct __sk_buff *skb, struct packet *p)
{
	struct ext_header ext;

	for (int i = 0; i < MAX_EXT_HEADERS; i++) {
		__u32 len;

		switch (p->proto) {
		case IPPROTO_HOPOPTS:
		case IPPROTO_ROUTING:
		case IPPROTO_FRAGMENT:
		case IPPROTO_AH:
		case IPPROTO_DSTOPTS:
			break;
		default:
			return true;
		}
		if (p->end - p->l4 < sizeof(ext) ||
		    bpf_skb_load_bytes(skb, p->l4, &ext, sizeof(ext)))
			return false;
		len = (ext.len + 1) * 8;
		if (p->proto == IPPROTO_AH) {
			len = (ext.len + 2) * 4;
		} else if (p->proto == IPPROTO_ROUTING) {
			if (bpf_ntohs(ext.frag) & 0xff)
				return false;
		} else if (p->proto == IPPROTO_FRAGMENT) {
			len = sizeof(ext);
			if (p->flags & (PKT_FIRST | PKT_LATER))
				return false;
			p->frag_id = ext.id;
			if (ext.frag & bpf_htons(IP6_OFFSET)) {
				p->proto = ext.next;
				p->flags = PKT_LATER;
				return bpf_ntohs(ext.frag & bpf_htons(IP6_OFFSET)) >=
				       l4_header(ext.next);
			}
			if (ext.frag & bpf_htons(IP6_MORE))
				p->flags = PKT_FIRST;
		}
		p->proto = ext.next;
		p->l4 += len;
		if (p->l4 > p->end)
			return false;
	}
	return false;
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
	p->hops = ip.hop_limit;
	p->l4 = offset + sizeof(ip);
	p->end = packet_end(skb, p->l4, 0, bpf_ntohs(ip.payload_len), !ip.payload_len);
	if (!p->end)
		return false;
	if (!parse_ext(skb, p))
		return false;
	if (p->flags & PKT_LATER)
		return true;
	return parse_l4(skb, dir, FAMILY_V6, p);
}

#endif
