//go:build ignore

// SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
/*
 * The two programs of a node, shared by all of its pods. Their names are the pod's view; which
 * hook of the host veth each belongs to is the business of shared/attach.
 */
#include <stdbool.h>
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_endian.h>

#include "types.h"
#include "maps.h"
#include "share.h"
#include "table.h"
#include "packet.h"
#include "icmp.h"
#include "transport.h"
#include "parse.h"
#include "policy.h"
#include "tonode.h"
#include "decide.h"
#include "flow.h"
#include "quote.h"
#include "frag.h"
#include "event.h"
#include "verdict.h"

char __license[] SEC("license") = "Dual BSD/GPL";

/* Types that only inner maps and the ring buffer name would not be whole in the BTF otherwise. */
const volatile struct {
	struct rule_key4 rule_key4;
	struct rule_key6 rule_key6;
	struct rule_val rule_val;
	struct port_block port_block;
	struct event event;
	enum latch_dir dir;
	enum latch_reason reason;
	enum latch_timeout timeout;
	enum latch_table table;
	enum latch_end end;
	enum flow_state state;
} whole_types;

/* What the pod sends. */
SEC("tc")
int from_pod(struct __sk_buff *skb)
{
	return judge_frame(skb, DIR_EGRESS);
}

/* What the pod is sent. */
SEC("tc")
int to_pod(struct __sk_buff *skb)
{
	return judge_frame(skb, DIR_INGRESS);
}
