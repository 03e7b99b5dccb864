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

static __always_inline void parse_icmp4(struct packet *p, const struct l4_head *head)
{
	switch (head->icmp.type) {
	case ICMP4_ECHO:
		p->flags |= PKT_OPENS;
		/* fallthrough */
	case ICMP4_ECHO_REPLY:
		p->lport = p->rport = head->icmp.id;
		return;
	case ICMP4_UNREACHABLE:
	case ICMP4_TIME_EXCEEDED:
	case ICMP4_PARAMETER:
		p->flags |= PKT_ERROR;
	}
	p->flags |= PKT_NOFLOW;
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
 * Whether a packet of neighbour discovery stays on the link. Hop limit 255 proves that it comes
 * from there. What a pod sends could still be forwarded by the node, and so carry anything
 * anywhere: unicast to a global address is of the link only if the frame is for a neighbour on
 * a bridge and not for the node to route, and is a bare solicitation or advertisement.
 */
static __always_inline bool is_discovery(struct __sk_buff *skb, const enum latch_dir dir,
					 const struct packet *p, __u8 type)
{
	if (p->hops != 255 || (p->flags & PKT_FIRST))
		return false;
	if (dir == DIR_INGRESS || is_link_multicast(&p->remote) || is_link_local(&p->remote))
		return true;
	return skb->pkt_type == PACKET_OTHERHOST && type >= ICMP6_NS && p->end - p->l4 <= 32;
}

static __always_inline void parse_icmp6(struct __sk_buff *skb, const enum latch_dir dir,
					struct packet *p, const struct l4_head *head)
{
	__u8 type = head->icmp.type;
	const union address *src = dir == DIR_EGRESS ? &p->local : &p->remote;

	if (type == ICMP6_ECHO || type == ICMP6_ECHO_REPLY) {
		if (type == ICMP6_ECHO)
			p->flags |= PKT_OPENS;
		p->lport = p->rport = head->icmp.id;
		return;
	}
	p->flags |= PKT_NOFLOW;
	if (type >= ICMP6_UNREACHABLE && type <= ICMP6_PARAMETER)
		p->flags |= PKT_ERROR;
	else if (type >= ICMP6_RS && type <= ICMP6_NA && is_discovery(skb, dir, p, type))
		p->flags |= PKT_LINK;
	else if (((type >= ICMP6_MLD_QUERY && type <= ICMP6_MLD_DONE) ||
		  type == ICMP6_MLD2_REPORT) &&
		 p->hops == 1 && !(p->flags & PKT_FIRST) &&
		 (is_link_local(src) || is_unspecified6(src)))
		p->flags |= PKT_LINK;
}

#endif
