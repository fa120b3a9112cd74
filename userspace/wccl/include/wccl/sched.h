/* SPDX-License-Identifier: MIT */
/**
 * The schedule format, version 2: what each rank does in a collective.
 *
 * The same bytes feed the executors (the command processor on-chip, a host progress thread over libfabric), the
 * checker and the time model. A schedule says nothing about element type, reduction, element count or addresses:
 * those are bound when it runs.
 *
 * Data. A collective of `count` elements cuts them into `parts` parts of nearly the same size. Each rank has three
 * buffers of chunks; chunk i of a buffer holds part i mod parts, so it is unit i / parts of `count` elements that is
 * cut. How many chunks INPUT and OUTPUT have follows from the collective (enum wccl_sched_collective); SCRATCH has as
 * many as it says. An op may name a run of chunks, which is contiguous in memory.
 *
 * V-counts (WCCL_SCHED_VCOUNTS): the units of a collective with units have a count and a place each. Unit k of the
 * count table is what rank k contributes to ALLGATHER and GATHER, or gets of REDUCESCATTER and SCATTER; unit s * n +
 * d is what rank s sends to rank d in ALLTOALL. Each is cut into `parts` parts. A run of chunks stays in one unit, an
 * op moves a unit to its own place at another rank or in the other buffer, and there is no SCRATCH. Without a table
 * the counts are bound when it runs.
 *
 * Roots. `root` is a rank, or, with WCCL_SCHED_ANY_ROOT, 0: rank r then stands for rank r + root (mod n) of the run.
 *
 * Links. Messages name a class of links, 0 .. link_classes - 1, from the fastest on (within a node, between nodes);
 * all messages of a (source, destination, lane) name the same. With one class there is no difference.
 *
 * Order. Ops of a rank run concurrently unless one names the other as a dependency. Two ops of a rank that touch the
 * same chunk, one of them writing, must be ordered by dependencies, also when the collective runs in place
 * (WCCL_SCHED_IN_PLACE). A message is a SEND and a RECV or RECV_REDUCE: for each (source, destination, lane) the n-th
 * SEND in the source's list meets the n-th receive in the destination's list. Chunk runs of both ends are equally
 * long and start at the same part.
 *
 * Steps. Every op carries a step: deps of an op have smaller steps, both ends of a message have the same, later
 * messages of the same (source, destination, lane) have larger ones, and a rank's list is sorted by step. So every
 * rank can run its list in order with any amount of look-ahead and any buffering, without a deadlock.
 * WCCL_SCHED_NO_STEPS asks the reader to find them.
 *
 * A file is header, rank table, ops, deps, counts, in any order and 8-aligned, little-endian. Readers check everything.
 */
#ifndef WCCL_SCHED_H
#define WCCL_SCHED_H

#include <assert.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#elif !defined(static_assert)
#define static_assert _Static_assert
#endif

#define WCCL_SCHED_MAGIC 0x4c434357u /* "WCCL" */
#define WCCL_SCHED_VERSION 2

/* Limits that a reader enforces before it allocates. */
#define WCCL_SCHED_MAX_RANKS 65536u
#define WCCL_SCHED_MAX_LANES 64u
#define WCCL_SCHED_MAX_CHUNKS (1u << 22)
#define WCCL_SCHED_MAX_OPS (1u << 28) /* of all ranks */
#define WCCL_SCHED_MAX_DEPS (1u << 29) /* of all ranks */
#define WCCL_SCHED_MAX_LINKS 8u
#define WCCL_SCHED_MAX_COUNTS (1u << 22)
#define WCCL_SCHED_MAX_ELEMENTS (1ull << 42) /* of a v-count's end */

/** What is computed. n: ranks, p: parts. Chunk u * p + i is part i of unit u; in place: which memory is shared. */
enum wccl_sched_collective {
	WCCL_COLL_ALLREDUCE = 1, /* input p, output p: the reduction of all inputs; in place: same buffer */
	WCCL_COLL_BROADCAST = 2, /* input p (root's counts), output p; in place: same */
	WCCL_COLL_REDUCE = 3, /* input p, output p (of the root); in place: same */
	WCCL_COLL_ALLGATHER =
		4, /* input p, output n p: unit u is rank u's input; in place: input is unit `rank` of output */
	WCCL_COLL_REDUCESCATTER =
		5, /* input n p, output p: reduction of unit `rank`; in place: output is unit `rank` of input */
	WCCL_COLL_ALLTOALL = 6, /* input n p, output n p: unit u is rank u's unit `rank`; in place: same */
	WCCL_COLL_GATHER = 7, /* input p, output n p (of the root); in place: as ALLGATHER */
	WCCL_COLL_SCATTER = 8, /* input n p (of the root), output p; in place: as REDUCESCATTER */
	WCCL_COLL_SENDRECV =
		9, /* input p, output p: the input of rank - root (mod n); `root` is the distance; in place: same */
	WCCL_COLL_BARRIER = 10, /* no data: nobody is through before everybody came */
};

enum wccl_sched_buffer {
	WCCL_BUF_INPUT = 0, /* read only, unless in place */
	WCCL_BUF_OUTPUT = 1,
	WCCL_BUF_SCRATCH = 2,
};

/** Codes from 16 on are kept for compute tiles of fused kernels; a reader of version 2 refuses them. */
enum wccl_sched_code {
	WCCL_OP_SEND = 1, /* src to peer */
	WCCL_OP_RECV = 2, /* dst <- peer */
	WCCL_OP_RECV_REDUCE = 3, /* dst <- src (op) what the peer sent; dst may be src */
	WCCL_OP_COPY = 4, /* dst <- src */
	WCCL_OP_REDUCE = 5, /* dst <- src (op) src2; dst may be one of them */
};

/** RECV_REDUCE, REDUCE: all inputs are in it now; an average is divided here, once. */
#define WCCL_OP_FINAL (1u << 0)

/** One op, 40 bytes. Fields that the code does not use are 0. `chunks` 0: a message without data. */
struct wccl_sched_op {
	uint8_t code; /* enum wccl_sched_code */
	uint8_t flags; /* WCCL_OP_* */
	uint16_t lane; /* SEND, RECV*: 0 .. lanes - 1 */
	uint8_t dst_buffer; /* enum wccl_sched_buffer */
	uint8_t src_buffer;
	uint8_t src2_buffer;
	uint8_t link; /* SEND, RECV*: class of links */
	uint32_t peer; /* SEND, RECV*: rank */
	uint32_t chunks; /* length of the run */
	uint32_t dst_chunk; /* first of the run */
	uint32_t src_chunk;
	uint32_t src2_chunk;
	uint32_t step;
	uint32_t deps; /* how many */
	uint32_t first_dep; /* in the rank's part of the dep table */
};
static_assert(sizeof(struct wccl_sched_op) == 40, "struct wccl_sched_op is 40 bytes");

/** One rank's part of the tables. Deps are uint32_t: indices of earlier ops of the same rank. */
struct wccl_sched_rank {
	uint64_t first_op; /* in the op table */
	uint64_t first_dep; /* in the dep table */
	uint32_t ops;
	uint32_t deps;
	uint64_t reserved;
};
static_assert(sizeof(struct wccl_sched_rank) == 32, "struct wccl_sched_rank is 32 bytes");

/**
 * A unit of a collective with v-counts: `count` elements, from these elements of the INPUT and the OUTPUT that hold
 * all units on.
 */
struct wccl_sched_count {
	uint64_t count;
	uint64_t input_offset; /* 0 where INPUT holds one unit */
	uint64_t output_offset; /* 0 where OUTPUT holds one unit */
};
static_assert(sizeof(struct wccl_sched_count) == 24, "struct wccl_sched_count is 24 bytes");

#define WCCL_SCHED_IN_PLACE (1u << 0) /* may also run in place */
#define WCCL_SCHED_NO_STEPS (1u << 1) /* steps are all 0: the reader computes them and sorts */
#define WCCL_SCHED_VCOUNTS (1u << 2) /* units have counts of their own */
#define WCCL_SCHED_ANY_ROOT (1u << 3) /* ranks count from the root */

struct wccl_sched_header {
	uint32_t magic; /* WCCL_SCHED_MAGIC */
	uint16_t version; /* WCCL_SCHED_VERSION */
	uint16_t header_bytes; /* sizes of the structures here; larger ones of a later version are skipped over */
	uint16_t rank_bytes;
	uint16_t op_bytes;
	uint32_t crc32; /* zlib's CRC-32 of the whole file with this field 0 */
	uint64_t file_bytes;
	uint32_t collective; /* enum wccl_sched_collective */
	uint32_t flags; /* WCCL_SCHED_* above */
	uint32_t ranks;
	uint32_t root; /* of those that have one; SENDRECV: distance */
	uint32_t parts; /* at least 1 */
	uint32_t input_chunks;
	uint32_t output_chunks;
	uint32_t scratch_chunks;
	uint32_t lanes; /* at least 1 */
	uint32_t steps; /* larger than any op's */
	uint64_t ops; /* of all ranks */
	uint64_t deps; /* of all ranks */
	uint64_t rank_offset; /* in the file: struct wccl_sched_rank[ranks] */
	uint64_t op_offset; /* struct wccl_sched_op[ops] */
	uint64_t dep_offset; /* uint32_t[deps] */
	uint8_t name[32]; /* of the algorithm, text, zero-filled */
	uint64_t counts; /* with VCOUNTS: units, or 0: bound when it runs */
	uint64_t count_offset; /* struct wccl_sched_count[counts] */
	uint32_t link_classes; /* at least 1 */
	uint32_t reserved;
};
static_assert(sizeof(struct wccl_sched_header) == 160, "struct wccl_sched_header is 160 bytes");
static_assert(offsetof(struct wccl_sched_header, ops) == 64, "wccl_sched_header.ops");
static_assert(offsetof(struct wccl_sched_header, link_classes) == 152, "wccl_sched_header.link_classes");

#ifdef __cplusplus
}
#endif

#endif
