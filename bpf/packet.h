/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* A packet as the programs know it, and the frame that it comes in. */
#ifndef LATCH_PACKET_H
#define LATCH_PACKET_H

#define ETH_HEADER 14
#define VLAN_TAG 4
#define VLAN_VID 0x0fff
#define MAX_VLAN_TAGS 2

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

/*
 * Where in the frame the IP header is and what it is: the scalar that stands for a parsed packet.
 * Where 0 is, nothing was parsed.
 */
#define PLACE_L3 0xffff
#define PLACE_EGRESS 0x10000
#define PLACE_V6 0x20000
#define PLACE(l3, dir, family) \
	((l3) | ((dir) == DIR_EGRESS ? PLACE_EGRESS : 0) | ((family) == FAMILY_V6 ? PLACE_V6 : 0))

/* Reads the addresses once more, IPv4 ones v4-mapped. Not 0 = they are not there. */
static __always_inline int read_addresses(struct __sk_buff *skb, __u32 place, __u8 src[16],
					  __u8 dst[16])
{
	__u32 l3 = place & PLACE_L3;

	if (place & PLACE_V6)
		return bpf_skb_load_bytes(skb, l3 + 8, src, 16) |
		       bpf_skb_load_bytes(skb, l3 + 24, dst, 16);
	__builtin_memset(src, 0, 10);
	__builtin_memset(src + 10, 0xff, 2);
	__builtin_memset(dst, 0, 10);
	__builtin_memset(dst + 10, 0xff, 2);
	return bpf_skb_load_bytes(skb, l3 + 12, src + 12, 4) |
	       bpf_skb_load_bytes(skb, l3 + 16, dst + 12, 4);
}

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

#endif
