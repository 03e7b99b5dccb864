/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * What user space gets to know of a verdict: a counter, and an event if asked for. Neither can
 * change the verdict. Packets of known flows are not reported.
 */
#ifndef LATCH_EVENT_H
#define LATCH_EVENT_H

/*
 * Waking the reader costs microseconds: one wake-up in about 100 ms, and whenever the ring is a
 * quarter full. A reader that wants its last events sooner reads with a deadline.
 */
#define WAKE_STAMPS 6
#define WAKE_SHARE 4

static __always_inline void count(__u32 slot, __u32 place, const struct verdict *v)
{
	struct counter_key key = {
		.slot = slot,
		.dir = !!(place & PLACE_EGRESS),
		.reason = v->reason,
		.allow = v->allow,
	};
	__u64 *n = bpf_map_lookup_elem(&counters, &key);
	__u64 one = 1;

	if (n)
		*n += 1;
	else /* another CPU may make it meanwhile: a program writes the value of its own CPU only */
		bpf_map_update_elem(&counters, &key, &one, BPF_ANY);
}

static __always_inline __u64 wake_flag(struct node *n)
{
	__u32 now = stamp_now();

	if ((__s32)(now - n->events_woken) < WAKE_STAMPS &&
	    bpf_ringbuf_query(&events, BPF_RB_AVAIL_DATA) <
		    bpf_ringbuf_query(&events, BPF_RB_RING_SIZE) / WAKE_SHARE)
		return BPF_RB_NO_WAKEUP;
	n->events_woken = now;
	return BPF_RB_FORCE_WAKEUP;
}

/* The half of the ring that is left when it is half full is for pods that keep to their share. */
static __always_inline bool has_room(struct __sk_buff *skb, __u32 pod)
{
	struct quota *q = find_quota(skb);

	if (q && within_share(&q->events, pod, stamp_now(), EVENT_STAMPS, event_share))
		return true;
	return bpf_ringbuf_query(&events, BPF_RB_AVAIL_DATA) <
	       bpf_ringbuf_query(&events, BPF_RB_RING_SIZE) / 2;
}

/* slot is that of a counter_key. */
__attribute__((noinline)) int report(struct __sk_buff *skb, __u32 slot, __u32 place, __u64 what,
				     __u64 word)
{
	struct verdict v = verdict_of(word);
	struct event *event = NULL;
	struct pod_state *pod;
	struct slot *s;
	struct node *n;
	__u32 zero = 0;
	__be16 lport = what, rport = what >> 16;

	count(slot, place, &v);
	n = bpf_map_lookup_elem(&node, &zero);
	if (!n || !(v.allow ? v.admits && (n->flags & NODE_F_EVENTS_ALLOW) :
			      n->flags & NODE_F_EVENTS_DENY))
		return 0;

	pod = find_pod(skb->ifindex);
	if (has_room(skb, pod ? pod->pod : 0))
		event = bpf_ringbuf_reserve(&events, sizeof(*event), 0);
	if (!event) {
		count(COUNTER_LOST_EVENTS, place, &v);
		return 0;
	}
	s = bpf_map_lookup_elem(&slots, &slot);
	event->time = bpf_ktime_get_ns();
	event->pod = pod ? pod->pod : 0;
	event->ifindex = skb->ifindex;
	event->slot = slot;
	event->generation = s ? s->generation : 0;
	event->result = v.result;
	event->len = skb->len;
	if (place & PLACE_L3) {
		read_addresses(skb, place, event->src, event->dst);
	} else {
		__builtin_memset(event->src, 0, sizeof(event->src));
		__builtin_memset(event->dst, 0, sizeof(event->dst));
	}
	event->sport = place & PLACE_EGRESS ? lport : rport;
	event->dport = place & PLACE_EGRESS ? rport : lport;
	event->proto = what >> 32;
	event->dir = !!(place & PLACE_EGRESS);
	event->reason = v.reason;
	event->allow = v.allow;
	bpf_ringbuf_submit(event, wake_flag(n));
	return 0;
}

#endif
