/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* The maps. Their names are the names of their pins; sizes marked (Sizes) are set by the loader. */
#ifndef LATCH_MAPS_H
#define LATCH_MAPS_H

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, POD_STATE_SIZE);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct pod_state);
} pod_state SEC(".maps");

/* Interfaces whose element of pod_state is taken by another one. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1024);
	__type(key, __u32);
	__type(value, struct pod_state);
} pod_state_hash SEC(".maps");

static __always_inline struct pod_state *find_pod(__u32 ifindex)
{
	__u32 index = ifindex & (POD_STATE_SIZE - 1);
	struct pod_state *pod = bpf_map_lookup_elem(&pod_state, &index);

	if (pod && pod->ifindex == ifindex)
		return pod;
	return bpf_map_lookup_elem(&pod_state_hash, &ifindex);
}

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MAX_SLOTS);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct slot);
} slots SEC(".maps");

/* One outer map per direction and family keeps lookups in the inner one free of indirect calls. */
#define PER_SLOT(name, inner_type, inner_flags, key_type, value_type) \
	struct {                                                      \
		__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);             \
		__uint(max_entries, MAX_SLOTS);                       \
		__type(key, __u32);                                   \
		__array(                                              \
			values, struct {                              \
				__uint(type, inner_type);             \
				__uint(max_entries, 1);               \
				__uint(map_flags, inner_flags);       \
				__type(key, key_type);                \
				__type(value, value_type);            \
			});                                           \
	} name SEC(".maps")

PER_SLOT(rules_in4, BPF_MAP_TYPE_HASH, 0, struct rule_key4, struct rule_val);
PER_SLOT(rules_out4, BPF_MAP_TYPE_HASH, 0, struct rule_key4, struct rule_val);
PER_SLOT(rules_in6, BPF_MAP_TYPE_HASH, 0, struct rule_key6, struct rule_val);
PER_SLOT(rules_out6, BPF_MAP_TYPE_HASH, 0, struct rule_key6, struct rule_val);
PER_SLOT(trie_in4, BPF_MAP_TYPE_LPM_TRIE, BPF_F_NO_PREALLOC, struct rule_key4, struct rule_val);
PER_SLOT(trie_out4, BPF_MAP_TYPE_LPM_TRIE, BPF_F_NO_PREALLOC, struct rule_key4, struct rule_val);
PER_SLOT(trie_in6, BPF_MAP_TYPE_LPM_TRIE, BPF_F_NO_PREALLOC, struct rule_key6, struct rule_val);
PER_SLOT(trie_out6, BPF_MAP_TYPE_LPM_TRIE, BPF_F_NO_PREALLOC, struct rule_key6, struct rule_val);
PER_SLOT(portsets, BPF_MAP_TYPE_ARRAY, BPF_F_INNER_MAP, __u32, struct port_block);

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 131072); /* (Sizes) */
	__type(key, struct flow_key4);
	__type(value, struct flow);
} flows4 SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 65536); /* (Sizes) */
	__type(key, struct flow_key6);
	__type(value, struct flow);
} flows6 SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, POD_STATE_SIZE);
	__type(key, __u32);
	__type(value, struct share);
} shares SEC(".maps");

/* Flows of pods that open more than their share: there they only push out each other's. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 16384); /* (Sizes) */
	__type(key, struct flow_key4);
	__type(value, struct flow);
} spill4 SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 8192); /* (Sizes) */
	__type(key, struct flow_key6);
	__type(value, struct flow);
} spill6 SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 32768); /* (Sizes) */
	__type(key, struct frag_key);
	__type(value, struct frag);
} frags SEC(".maps");

/* What spill4 is to flows4. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 4096); /* (Sizes) */
	__type(key, struct frag_key);
	__type(value, struct frag);
} frag_spill SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, POD_STATE_SIZE);
	__type(key, __u32);
	__type(value, struct quota);
} quotas SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, __TABLE_MAX);
	__type(key, __u32);
	__type(value, struct table_count);
} table_counts SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, __TABLE_MAX);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct table_end);
} table_ends SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 512 * 1024); /* (Sizes) */
} events SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_HASH);
	__uint(max_entries, MAX_COUNTERS);
	__type(key, struct counter_key);
	__type(value, __u64);
} counters SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct node);
} node SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1024);
	__type(key, struct node_addr);
	__type(value, __u8);
} node_addrs SEC(".maps");

#endif
