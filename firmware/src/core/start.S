/* SPDX-License-Identifier: MIT */
/* The first instructions: the ROM jumps here with all registers 0. */
	.section .text.start, "ax"
	.globl _start
	.type _start, @function
_start:
	.option push
	.option norelax			/* gp is not set yet, so it cannot be used to set itself */
	la	gp, __global_pointer$
	.option pop
	la	sp, __stack_top		/* 16-aligned, RISC-V calling convention */
	la	a0, __bss_start
	la	a1, __bss_end
1:	bgeu	a0, a1, 2f
	sw	zero, 0(a0)
	addi	a0, a0, 4
	j	1b
2:	call	weft_main
	ebreak				/* it does not return */
	.size _start, . - _start
