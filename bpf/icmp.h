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

#define AF_INET6 10
#define FLOWINFO_MASK 0x0fffffff /* traffic class and flow label */
#define NOT_FORWARDED 0xffffffff /* link_of */

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

static __always_inline bool is_multicast6(const union address *a)
{
	return (a->w[0] & bpf_htonl(0xff000000)) == bpf_htonl(0xff000000);
}

/*
 * The interface on whose link the node looks for dst. NOT_FORWARDED for addresses of the node and
 * what it has no route to; 0 for all else: what is beyond a router, or if the pod's interface is
 * not to forward, where Linux neither answers nor obeys.
 */
static __always_inline __u32 link_of(struct __sk_buff *skb, const struct ipv6hdr *ip,
				     const union address *dst)
{
	struct bpf_fib_lookup f = {
		.family = AF_INET6,
		.l4_protocol = IPPROTO_ICMPV6,
		.ifindex = skb->ifindex,
		.flowinfo = *(const __be32 *)ip & bpf_htonl(FLOWINFO_MASK),
	};
	long answer;

	__builtin_memcpy(f.ipv6_src, &ip->saddr, sizeof(f.ipv6_src));
	__builtin_memcpy(f.ipv6_dst, dst, sizeof(f.ipv6_dst));
	answer = bpf_fib_lookup(skb, &f, sizeof(f), 0);
	if (answer == BPF_FIB_LKUP_RET_NOT_FWDED)
		return NOT_FORWARDED;
	if (answer != BPF_FIB_LKUP_RET_SUCCESS && answer != BPF_FIB_LKUP_RET_NO_NEIGH)
		return 0;
	return __builtin_memcmp(f.ipv6_dst, dst, sizeof(f.ipv6_dst)) ? 0 : f.ifindex;
}

/*
 * Whether what a pod sends to a unicast address is for the node, or for a neighbour on a bridge.
 * The node routes what is for the bridge's hardware address, which is not that of the pod's port:
 * so the node must look for the neighbour where it looks for the pod. Marks that rules of the node
 * set later can lead to a route that the lookup does not know; but Linux forwards nothing that is
 * not PACKET_HOST, which only a bridge makes the packet again.
 */
__attribute__((noinline)) int stays_on_link(struct __sk_buff *skb, __u32 place)
{
	struct pod_state *pod = find_pod(skb->ifindex);
	union address dst;
	struct ipv6hdr ip;
	__u32 link;

	if (!pod || bpf_skb_load_bytes(skb, place & PLACE_L3, &ip, sizeof(ip)))
		return 0;
	__builtin_memcpy(&dst, &ip.daddr, sizeof(dst));
	link = link_of(skb, &ip, &dst);
	if (link == NOT_FORWARDED)
		return skb->pkt_type == PACKET_OTHERHOST ||
		       !bpf_skb_change_type(skb, PACKET_MULTICAST);
	if (!link || skb->pkt_type != PACKET_OTHERHOST)
		return 0;
	__builtin_memcpy(&dst, pod->addr6, sizeof(dst));
	return !is_unspecified6(&dst) && link == link_of(skb, &ip, &dst);
}

/*
 * Whether an ICMPv6 packet is neighbour or multicast listener discovery that stays on the link. Hop
 * limits prove that it comes from there. What a pod sends could still be forwarded by the node, and
 * so carry anything anywhere: to a global address only a bare solicitation or advertisement is of
 * the link, if it stays there. Linux sends one to answer or probe a neighbour that uses such an
 * address, as a gateway does that has one on its interface.
 */
__attribute__((noinline)) int is_discovery(struct __sk_buff *skb, __u32 place, __u32 type,
					   __u32 len)
{
	union address src, dst;
	struct ipv6hdr ip;

	if (bpf_skb_load_bytes(skb, place & PLACE_L3, &ip, sizeof(ip)))
		return 0;
	__builtin_memcpy(&src, &ip.saddr, sizeof(src));
	__builtin_memcpy(&dst, &ip.daddr, sizeof(dst));
	if ((type >= ICMP6_MLD_QUERY && type <= ICMP6_MLD_DONE) || type == ICMP6_MLD2_REPORT)
		return ip.hop_limit == 1 && (is_link_local(&src) || is_unspecified6(&src));
	if (type < ICMP6_RS || type > ICMP6_NA || ip.hop_limit != 255)
		return 0;
	if (!(place & PLACE_EGRESS) || is_link_multicast(&dst) || is_link_local(&dst))
		return 1;
	if (type < ICMP6_NS || ip.nexthdr != IPPROTO_ICMPV6 || len > 32 || is_multicast6(&dst))
		return 0;
	return stays_on_link(skb, place);
}

#endif
