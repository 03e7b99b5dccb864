/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Tables that all pods put something into are shared out, so that one pod cannot push out what is
 * of others. The loader sets the shares from the tables' sizes.
 */
#ifndef LATCH_SHARE_H
#define LATCH_SHARE_H

/* Entries that a pod may make in so many stamps (about 16 s); what it makes beyond goes elsewhere.
 */
#define SHARE_STAMPS 960
const volatile __u32 flow_share4, flow_share6, frag_share;

/* Events in so many stamps (about 1 s). */
#define EVENT_STAMPS 64
const volatile __u32 event_share;

/* Set by the loader where the kernel has bpf_ktime_get_coarse_ns (5.11): 3 ns instead of 20. */
const volatile __u8 has_coarse_clock;

static __always_inline __u32 stamp_now(void)
{
	return (has_coarse_clock ? bpf_ktime_get_coarse_ns() : bpf_ktime_get_ns()) >> STAMP_SHIFT;
}

static __always_inline struct quota *find_quota(struct __sk_buff *skb)
{
	__u32 index = skb->ifindex & (POD_STATE_SIZE - 1);

	return bpf_map_lookup_elem(&quotas, &index);
}

/*
 * Whether a pod has taken less than its share lately, which this adds to. Counting loses some when
 * CPUs race, which is no matter.
 */
static __always_inline bool within_share(struct share *s, __u32 pod, __u32 now, __u32 stamps,
					 __u32 share)
{
	if (s->pod != pod) {
		s->pod = pod;
		s->spilled = 0;
		s->window = now - stamps;
	}
	if (now - s->window >= stamps) {
		s->window = now;
		s->opened = 0;
	}
	if (s->opened < share) {
		s->opened++;
		return true;
	}
	s->spilled = 1;
	return false;
}

#endif
