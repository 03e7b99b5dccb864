package bpf

//go:generate ../hack/bpf2go latch latch.bpf.c rule_key4 rule_key6 rule_val breakpoint port_block event
