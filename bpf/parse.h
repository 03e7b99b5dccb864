/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * From a frame to what is judged. Parsing is complete: a packet is either understood as its
 * receiver will understand it, or refused. Nothing is read beyond the length that the IP header
 * gives, and nothing is taken for a port that is none.
 */
#ifndef LATCH_PARSE_H
#define LATCH_PARSE_H

#define MAX_EXT_HEADERS 8
#define MAX_IP4_OPTIONS 20 /* two no-operations are one */

#define IP4_OFFSET 0x1fff
#define IP4_MORE 0x2000
#define IP6_OFFSET 0xfff8
#define IP6_MORE 0x0001

#define IP4_OPTION_NOP 1
#define IP4_OPTION_LSRR 3 /* without the bit that says whether fragments copy it */
#define IP4_OPTION_SSRR 9
#define IP4_OPTION_KIND 0x7f

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

/*
 * Whether IPv4 options contradict themselves or hold a source route. That hides where a packet
 * goes: what a pod may send to its node would be sent on from there. Not 0 = refuse.
 */
__attribute__((noinline)) int bad_options(struct __sk_buff *skb, __u32 offset, __u32 end)
{
	__u8 option[2];

	for (int i = 0; i < MAX_IP4_OPTIONS && offset < end; i++) {
		if (offset + 1 == end)
			return bpf_skb_load_bytes(skb, offset, option, 1) ||
			       option[0] > IP4_OPTION_NOP;
		if (bpf_skb_load_bytes(skb, offset, option, sizeof(option)))
			return 1;
		if (!option[0]) /* end of the list */
			return 0;
		if (option[0] == IP4_OPTION_NOP) {
			offset += 1 + (option[1] == IP4_OPTION_NOP);
			continue;
		}
		option[0] &= IP4_OPTION_KIND;
		if (option[0] == IP4_OPTION_LSRR || option[0] == IP4_OPTION_SSRR || option[1] < 2)
			return 1;
		offset += option[1];
	}
	return offset != end;
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
	if (ip.ihl > 5 && bad_options(skb, offset + sizeof(ip), p->l4))
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
