/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * What user space gets to know of a verdict: a counter, and an event if asked for. Neither can
 * change the verdict. Packets of known flows are not counted.
 */
#ifndef LATCH_EVENT_H
#define LATCH_EVENT_H

/*
 * Waking the reader costs microseconds: one wake-up in about 100 ms, and whenever the ring is a
 * quarter full. A reader that wants its last events sooner reads with a deadline.
 */
#define WAKE_STAMPS 6
#define WAKE_SHARE 4

static __always_inline void count(__u32 slot, const enum latch_dir dir, __u8 reason, bool allow)
{
	struct counter_key key = {.slot = slot, .dir = dir, .reason = reason, .allow = allow};
	__u64 *n = bpf_map_lookup_elem(&counters, &key);
	__u64 one = 1;

	if (n)
		*n += 1;
	else
		bpf_map_update_elem(&counters, &key, &one, BPF_NOEXIST);
}

static __always_inline __u64 wake_flag(const struct env *e)
{
	struct node *node = e->node;

	if ((__s32)(e->now - node->events_woken) >= WAKE_STAMPS ||
	    bpf_ringbuf_query(&events, BPF_RB_AVAIL_DATA) >
		    bpf_ringbuf_query(&events, BPF_RB_RING_SIZE) / WAKE_SHARE) {
		node->events_woken = e->now;
		return BPF_RB_FORCE_WAKEUP;
	}
	return BPF_RB_NO_WAKEUP;
}

static __always_inline void emit(const struct env *e, const enum latch_dir dir,
				 const enum latch_family family, const struct packet *p,
				 const struct verdict *v)
{
	struct event *event = bpf_ringbuf_reserve(&events, sizeof(*event), 0);

	if (!event) {
		count(COUNTER_LOST_EVENTS, dir, v->reason, v->allow);
		return;
	}
	event->time = bpf_ktime_get_ns();
	event->pod = e->pod->pod;
	event->ifindex = e->skb->ifindex;
	event->slot = e->slot_id;
	event->generation = e->generation;
	event->result = v->result;
	event->len = e->skb->len;
	mapped(event->src, dir == DIR_EGRESS ? &p->local : &p->remote, family);
	mapped(event->dst, dir == DIR_EGRESS ? &p->remote : &p->local, family);
	event->sport = dir == DIR_EGRESS ? p->lport : p->rport;
	event->dport = dir == DIR_EGRESS ? p->rport : p->lport;
	event->proto = p->proto;
	event->dir = dir;
	event->reason = v->reason;
	event->allow = v->allow;
	bpf_ringbuf_submit(event, wake_flag(e));
}

static __always_inline void report(const struct env *e, const enum latch_dir dir,
				   const enum latch_family family, const struct packet *p,
				   const struct verdict *v)
{
	__u32 flags = e->node->flags;

	count(e->slot_id, dir, v->reason, v->allow);
	if (v->allow ? v->admits && (flags & NODE_F_EVENTS_ALLOW) : flags & NODE_F_EVENTS_DENY)
		emit(e, dir, family, p, v);
}

#endif
