/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* ICMP of both families: which messages begin a flow, are errors, or belong to the link. */
#ifndef LATCH_ICMP_H
#define LATCH_ICMP_H

#define ICMP4_ECHO_REPLY 0
#define ICMP4_UNREACHABLE 3
#define ICMP4_ECHO 8
#define ICMP4_TIME_EXCEEDED 11
#define ICMP4_PARAMETER 12
#define ICMP6_UNREACHABLE 1
#define ICMP6_PARAMETER 4
#define ICMP6_ECHO 128
#define ICMP6_ECHO_REPLY 129
#define ICMP6_MLD_QUERY 130
#define ICMP6_MLD_DONE 132
#define ICMP6_RS 133
#define ICMP6_NS 135
#define ICMP6_NA 136
#define ICMP6_MLD2_REPORT 143

static __always_inline bool is_echo(const enum latch_family family, __u8 type)
{
	if (family == FAMILY_V4)
		return type == ICMP4_ECHO || type == ICMP4_ECHO_REPLY;
	return type == ICMP6_ECHO || type == ICMP6_ECHO_REPLY;
}

/* packet.flags by type */
static __always_inline __u8 icmp4_flags(__u8 type)
{
	switch (type) {
	case ICMP4_ECHO:
		return PKT_OPENS;
	case ICMP4_ECHO_REPLY:
		return 0;
	case ICMP4_UNREACHABLE:
	case ICMP4_TIME_EXCEEDED:
	case ICMP4_PARAMETER:
		return PKT_NOFLOW | PKT_ERROR;
	}
	return PKT_NOFLOW;
}

static __always_inline __u8 icmp6_flags(__u8 type)
{
	if (type == ICMP6_ECHO)
		return PKT_OPENS;
	if (type == ICMP6_ECHO_REPLY)
		return 0;
	if (type >= ICMP6_UNREACHABLE && type <= ICMP6_PARAMETER)
		return PKT_NOFLOW | PKT_ERROR;
	return PKT_NOFLOW;
}

static __always_inline bool is_link_local(const union address *a)
{
	return (a->w[0] & bpf_htonl(0xffc00000)) == bpf_htonl(0xfe800000);
}

static __always_inline bool is_unspecified6(const union address *a)
{
	return !(a->d[0] | a->d[1]);
}

/* ff02::/16, the multicast scope that no router forwards. */
static __always_inline bool is_link_multicast(const union address *a)
{
	return (a->w[0] & bpf_htonl(0xffff0000)) == bpf_htonl(0xff020000);
}

/*
 * Whether an ICMPv6 packet is neighbour or multicast listener discovery that stays on the link. Hop
 * limits prove that it comes from there. What a pod sends could still be forwarded by the node, and
 * so carry anything anywhere: unicast to a global address is of the link only if the frame is for a
 * neighbour on a bridge and not for the node to route, and is a bare solicitation or advertisement.
 */
__attribute__((noinline)) int is_discovery(struct __sk_buff *skb, __u32 place, __u32 type,
					   __u32 len)
{
	union address src, dst;
	struct ipv6hdr ip;

	if (bpf_skb_load_bytes(skb, place & 0xffff, &ip, sizeof(ip)))
		return 0;
	__builtin_memcpy(&src, &ip.saddr, sizeof(src));
	__builtin_memcpy(&dst, &ip.daddr, sizeof(dst));
	if ((type >= ICMP6_MLD_QUERY && type <= ICMP6_MLD_DONE) || type == ICMP6_MLD2_REPORT)
		return ip.hop_limit == 1 && (is_link_local(&src) || is_unspecified6(&src));
	if (type < ICMP6_RS || type > ICMP6_NA || ip.hop_limit != 255)
		return 0;
	if (!(place & PLACE_EGRESS) || is_link_multicast(&dst) || is_link_local(&dst))
		return 1;
	return skb->pkt_type == PACKET_OTHERHOST && type >= ICMP6_NS && len <= 32;
}

#endif
