package bpf

//go:generate go tool bpf2go -cc clang-14 -strip llvm-strip -target bpfel -output-stem latch -type rule_key4 -type rule_key6 -type rule_val -type breakpoint -type port_block -type event latch latch.bpf.c -- -O2 -Wall -Wextra -Werror -mcpu=v3 -I/usr/include/x86_64-linux-gnu -I/usr/include/aarch64-linux-gnu
