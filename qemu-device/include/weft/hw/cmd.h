/* SPDX-License-Identifier: MIT */
/** Commands and command queues. */
#ifndef WEFT_HW_CMD_H
#define WEFT_HW_CMD_H

#include "types.h"

#define WEFT_CMD_VERSION 2

/*
 * Fields that an operation does not use are 0, or the command fails with WEFT_ERR_BAD_FIELD: operands, arguments, length,
 * and the values that belong to a wait_id or signal_id of WEFT_SYNC_NONE.
 */

enum weft_cmd_op {
	WEFT_OP_NOP = 0, /* waits and signals only */
	WEFT_OP_COPY = 1, /* 0 <- 1, length bytes; overlap in the same memory is as memmove */
	WEFT_OP_FILL = 2, /* 0 <- the 8-byte pattern addr[1] repeated, length bytes; length and address 8-aligned */
	/* 0 <- 1 (redop) 2, length elements of dtype, aligned to the element; 0 may equal 1 or 2, never overlap in part */
	WEFT_OP_REDUCE = 3,
	WEFT_OP_RDMA = 4, /* see enum weft_rdma_op */
	WEFT_OP_FENCE = 5, /* starts when all earlier commands of the queue are complete; later ones wait for it */
	WEFT_OP_TIMESTAMP = 6, /* 0 <- the device clock, 8 bytes, 8-aligned, ns */
	WEFT_OP_SIGNAL = 7, /* adds addr[0] (64 bits), in place of signal_add, to sync object signal_id */
	/* Offered with WEFT_CAP_GEMM / WEFT_CAP_PROGRAMS; refused with WEFT_ERR_BAD_OP otherwise. */
	WEFT_OP_GEMM = 16, /* tile: 0 <- 0 + 1 x 2; geometry in the extension */
	/* The body, the next arg16 slots, addr[0] times; with key[0] the count is the 64-bit word at 0. */
	WEFT_OP_LOOP = 17,
	WEFT_OP_CALL = 18, /* the program of `length` slots in memory at 1, 64-aligned; counts as one command */
	/* struct weft_cmd_operands at 1 replaces operands of the next command: arg0, WEFT_OPERAND_* */
	WEFT_OP_INDIRECT = 19,
	/* The next command, with its extension, goes to FIFO key[2] (struct weft_fifo_entry): a proxy does its work. */
	WEFT_OP_HOST = 20,
};

#define WEFT_CMD_EXT (1u << 0) /* the next 64-byte slot belongs to this command: struct weft_cmd_ext */
#define WEFT_CMD_FENCED (1u << 1) /* as if a FENCE came just before; who follows does not wait for this command */
#define WEFT_CMD_STEP (1u << 2) /* struct weft_cmd_step follows, behind the extension if there is one; in a body only */

/* Limits of programs; WEFT_ERR_LIMIT beyond. A command that failed in one is named by the ring's head. */
#define WEFT_PROGRAM_DEPTH 4 /* LOOPs and CALLs in each other */
#define WEFT_PROGRAM_SLOTS 65536 /* of a CALL's program, and of a LOOP's body */
#define WEFT_LOOP_COUNT_MAX (1ull << 32) /* iterations of one LOOP */

/* REDUCE operands. Values are NCCL's ncclDataType_t and ncclRedOp_t, so that no table is needed anywhere. */
enum weft_dtype {
	WEFT_I8 = 0,
	WEFT_U8 = 1,
	WEFT_I32 = 2,
	WEFT_U32 = 3,
	WEFT_I64 = 4,
	WEFT_U64 = 5,
	WEFT_F16 = 6,
	WEFT_F32 = 7,
	WEFT_F64 = 8,
	WEFT_BF16 = 9,
	WEFT_F8E4M3 = 10,
	WEFT_F8E5M2 = 11,
	WEFT_DTYPES = 12,
};
enum weft_redop {
	WEFT_SUM = 0,
	WEFT_PROD = 1,
	WEFT_MAX = 2,
	WEFT_MIN = 3,
	WEFT_AVG = 4, /* (1 + 2), then divided by arg16 where that is not 0 (the last step of an average) */
	WEFT_REDOPS = 5,
};

/*
 * RDMA: addr[0], key[0]: local buffer; addr[1], key[1]: remote address and rkey; key[2]: channel (QPN); length bytes.
 * The command completes (and signals) when the peer has acknowledged it.
 */
enum weft_rdma_op {
	WEFT_RDMA_WRITE = 0,
	WEFT_RDMA_WRITE_IMM =
		1, /* addr[2]: 32-bit immediate; on a channel, the peer's sync object sync_base + it += 1 */
	WEFT_RDMA_READ = 2,
	WEFT_RDMA_SEND = 3,
};

/**
 * One command, 64 bytes. The wait is met when the sync object's value >= wait_value (unsigned 64 bits). Commands of
 * one queue are fetched in order and start in any order that waits, fences and resources allow; a command that must
 * follow another names it by a wait.
 */
struct weft_cmd {
	uint8_t op; /* enum weft_cmd_op */
	uint8_t version; /* WEFT_CMD_VERSION */
	weft_le16 flags; /* WEFT_CMD_* */
	weft_le32 wait_id; /* sync object or WEFT_SYNC_NONE */
	weft_le64 wait_value;
	weft_le32 signal_id; /* sync object or WEFT_SYNC_NONE */
	weft_le16 signal_add; /* added on completion */
	uint8_t arg0; /* REDUCE, GEMM: enum weft_dtype; RDMA: enum weft_rdma_op */
	uint8_t arg1; /* REDUCE: enum weft_redop; others 0 */
	weft_le64 addr[3];
	weft_le32 key[3];
	weft_le32 length; /* bytes; REDUCE: elements; CALL: commands */
};
WEFT_ASSERT_SIZE(struct weft_cmd, 64);
WEFT_ASSERT_OFFSET(struct weft_cmd, addr, 24);
WEFT_ASSERT_OFFSET(struct weft_cmd, key, 48);

/** Second slot of a command with WEFT_CMD_EXT. Unused fields are 0. */
struct weft_cmd_ext {
	uint8_t version; /* WEFT_CMD_VERSION */
	uint8_t waits; /* further waits used, 0..2 */
	weft_le16 arg16; /* REDUCE AVG: divisor; LOOP: slots of the body */
	weft_le32 wait_id[2]; /* further sync objects to wait for */
	weft_le32 reserved0;
	weft_le64 wait_value[2];
	weft_le32 dim[3]; /* GEMM: m, n, k; strided copies: rows, 0, 0 */
	weft_le32 stride[3]; /* GEMM: leading dimensions; strided copies: bytes */
	weft_le64 reserved1;
};
WEFT_ASSERT_SIZE(struct weft_cmd_ext, 64);

/**
 * What changes from one iteration of a loop to the next: in iteration i (from 0) i times these are added, modulo the
 * field's size, to the fields of the command and of its extension.
 */
struct weft_cmd_step {
	uint8_t version; /* WEFT_CMD_VERSION */
	uint8_t level; /* whose iteration counts: 0 the innermost loop, 1 the one around it, ... */
	uint8_t more; /* 1: another step, of another level, follows */
	uint8_t reserved[5];
	weft_le64 addr[3]; /* addresses, and what else is in addr[]: pattern, immediate, amount */
	weft_le64 wait_value[3]; /* of the command, then of its extension */
	weft_le32 wait_id;
	weft_le32 signal_id;
};
WEFT_ASSERT_SIZE(struct weft_cmd_step, 64);

/* Operands that INDIRECT replaces. */
#define WEFT_OPERAND_ADDR(i) (1u << (i))
#define WEFT_OPERAND_KEY(i) (1u << (3 + (i)))
#define WEFT_OPERAND_LENGTH (1u << 6)
#define WEFT_OPERAND_WAIT (1u << 7) /* wait_value */

/** What INDIRECT reads, once its waits are met; fields that arg0 does not name are not looked at. */
struct weft_cmd_operands {
	weft_le64 addr[3];
	weft_le32 key[3];
	weft_le32 length;
	weft_le64 wait_value;
	weft_le64 reserved[2];
};
WEFT_ASSERT_SIZE(struct weft_cmd_operands, 64);

/** Head of a ring, written by the device alone; slot i is at 64 + 64 * (i mod entries). */
struct weft_ring_head {
	weft_le64 fetched; /* slots that the producer may use again, free-running */
	weft_le64 completed; /* commands completed, in any order */
	weft_le32 state; /* enum weft_queue_state */
	weft_le32 error; /* enum weft_error of the first failed command */
	weft_le64 error_index; /* slot index of that command, free-running */
	/* Where in a program: all 0 for a command of the ring itself. */
	weft_le64 error_program; /* address of the CALL's program that the command stands in */
	weft_le64 error_iteration; /* of the innermost loop around it */
	weft_le32 error_pc; /* slot in that program, or behind the LOOP of the ring */
	weft_le32 error_depth; /* LOOPs and CALLs around it */
	weft_le64 reserved;
};
WEFT_ASSERT_SIZE(struct weft_ring_head, 64);
WEFT_ASSERT_OFFSET(struct weft_ring_head, state, 16);

enum weft_queue_state {
	WEFT_QUEUE_RUNNING = 1,
	WEFT_QUEUE_HALTED =
		2, /* a command failed, or the queue was aborted: nothing more starts, nothing more signals */
};

/** A command queue, as the mailbox creates it. The ring is named like all memory; host memory or HBM. */
struct weft_queue_entry {
	weft_le32 ctx;
	weft_le32 queue; /* 0..WEFT_QUEUES_PER_CONTEXT - 1 */
	weft_le32 ring_key; /* region with READ and WRITE */
	weft_le32 entries; /* slots, a power of two, 16..65536 */
	weft_le64 ring_addr; /* of struct weft_ring_head, 64-aligned */
	weft_le32 priority; /* 0 */
	weft_le32 flags; /* 0 */
	weft_le64 reserved[4];
};
WEFT_ASSERT_SIZE(struct weft_queue_entry, 64);

#endif
