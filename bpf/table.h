/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Writes to the tables that Linux may push entries out of, counted. */
#ifndef LATCH_TABLE_H
#define LATCH_TABLE_H

#define EEXIST 17

/*
 * Puts an entry into a table, over whatever its key held. Only a new key costs one update: it is
 * what nearly every flow and first fragment is. Before Linux 6.4 an error is an int, and the upper
 * half of what comes back is nothing.
 */
static __always_inline int put(void *map, __u32 table, const void *key, const void *value)
{
	struct table_count *n = bpf_map_lookup_elem(&table_counts, &table);
	int err = bpf_map_update_elem(map, key, value, BPF_NOEXIST);

	if (!n)
		return err; /* there is an element for each table */
	if (err == -EEXIST) {
		if (!bpf_map_update_elem(map, key, value, BPF_EXIST)) {
			n->replaced++;
			return 0;
		}
		err = bpf_map_update_elem(map, key, value, BPF_ANY); /* pushed out since */
	}
	if (!err)
		n->made++;
	return err;
}

/*
 * Takes an entry out of a table, if it is there. It is counted before, so that nobody takes it for
 * pushed out meanwhile.
 */
static __always_inline void take(void *map, __u32 table, const void *key)
{
	struct table_count *n = bpf_map_lookup_elem(&table_counts, &table);

	if (n)
		n->moved++;
	if (bpf_map_delete_elem(map, key) && n)
		n->moved--;
}

#endif
