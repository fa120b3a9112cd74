/* SPDX-License-Identifier: MIT */
/**
 * Queue pairs of the on-chip RoCE v2 NIC.
 *
 * One engine serves both kinds of owner. A *channel* is an RC queue pair that the device owns: the command processor is
 * its only producer and completions and arrivals raise sync objects. A *verbs* queue pair belongs to a user, who posts
 * struct weft_wqe to rings and takes struct weft_cqe from completion queues; the device never posts to it.
 */
#ifndef WEFT_HW_QP_H
#define WEFT_HW_QP_H

#include "types.h"

enum weft_qp_type {
	WEFT_QP_RC = 1,
	WEFT_QP_UC = 2,
	WEFT_QP_UD = 3,
	WEFT_QP_GSI = 4,
	WEFT_QP_CHANNEL = 8, /* RC on the wire */
};

/* IBTA volume 1, section 10.3.1. */
enum weft_qp_state {
	WEFT_QPS_RESET = 0,
	WEFT_QPS_INIT = 1,
	WEFT_QPS_RTR = 2,
	WEFT_QPS_RTS = 3,
	WEFT_QPS_SQD = 4,
	WEFT_QPS_SQE = 5,
	WEFT_QPS_ERR = 6,
};

/* Path MTU as IBTA encodes it: bytes = 128 << value. */
enum weft_mtu {
	WEFT_MTU_256 = 1,
	WEFT_MTU_512 = 2,
	WEFT_MTU_1024 = 3,
	WEFT_MTU_2048 = 4,
	WEFT_MTU_4096 = 5,
	WEFT_MTU_8192 = 6, /* Weft to Weft only: HCL's default, outside IBTA */
};

/** A queue pair: what the mailbox creates, modifies and reports. Which fields count depends on type and state. */
struct weft_qp_entry {
	weft_le32 qpn; /* out on create */
	weft_le32 ctx;
	uint8_t type; /* enum weft_qp_type */
	uint8_t state; /* enum weft_qp_state: wanted in MODIFY, present in QUERY */
	uint8_t port; /* 0.. */
	uint8_t path_mtu; /* enum weft_mtu */
	uint8_t timeout; /* local ACK timeout 4.096 us << value; 0: none */
	uint8_t retry_cnt; /* 0..7 */
	uint8_t rnr_retry; /* 0..7, 7: without limit */
	uint8_t min_rnr_timer; /* 0..31, IBTA table 46 */
	weft_le32 dest_qpn;
	weft_le32 sq_psn; /* 24 bits */
	weft_le32 rq_psn; /* 24 bits */
	weft_le32 qkey;
	weft_le16 pkey; /* 0xffff by default */
	weft_le16 udp_sport; /* 0: from flow label and QPNs */
	weft_le32 flow_label;
	uint8_t traffic_class;
	uint8_t hop_limit;
	uint8_t dmac[6];
	uint8_t sgid[16]; /* IPv4 as ::ffff:a.b.c.d */
	uint8_t dgid[16];
	weft_le16 vlan; /* 0xffff: none */
	uint8_t max_rd_atomic; /* reads and atomics outstanding as requester */
	uint8_t max_dest_rd_atomic; /* as responder */
	weft_le32 access; /* WEFT_RIGHT_REMOTE_* granted to the peer */
	/* channel: immediate i of a WRITE_IMM raises sync object sync_base + i, i < sync_count */
	weft_le32 sync_base;
	weft_le32 sync_count;
	/* verbs: rings are memory of ctx, named like all memory */
	weft_le32 send_cq;
	weft_le32 recv_cq;
	weft_le32 srq; /* 0: none */
	weft_le32 sq_entries;
	weft_le32 rq_entries;
	weft_le32 sq_key;
	weft_le64 sq_addr;
	weft_le64 rq_addr;
	weft_le32 rq_key;
	weft_le32 flags; /* WEFT_QP_SIGNAL_ALL */
	weft_le32 error; /* out: enum weft_error that moved it to ERR */
	weft_le32 reserved[3];
};
WEFT_ASSERT_SIZE(struct weft_qp_entry, 160);

#define WEFT_QP_SIGNAL_ALL (1u << 0)

/** Which fields a MODIFY carries: the state transition always, and these. */
#define WEFT_QPM_PATH (1u << 0) /* port, dmac, sgid, dgid, flow_label, traffic_class, hop_limit, udp_sport, vlan */
#define WEFT_QPM_MTU (1u << 1)
#define WEFT_QPM_DEST (1u << 2) /* dest_qpn */
#define WEFT_QPM_RQ_PSN (1u << 3)
#define WEFT_QPM_SQ_PSN (1u << 4)
#define WEFT_QPM_RETRY (1u << 5) /* timeout, retry_cnt, rnr_retry */
#define WEFT_QPM_RNR_TIMER (1u << 6)
#define WEFT_QPM_QKEY (1u << 7)
#define WEFT_QPM_ACCESS (1u << 8)
#define WEFT_QPM_RD_ATOMIC (1u << 9)
#define WEFT_QPM_SYNC (1u << 10) /* sync_base, sync_count */

/** Completion queue and shared receive queue, as the mailbox creates them. */
struct weft_cq_entry {
	weft_le32 cqn; /* out */
	weft_le32 ctx;
	weft_le32 key;
	weft_le32 entries; /* power of two */
	weft_le64 addr;
	weft_le32 vector;
	weft_le32 flags;
	weft_le64 reserved[4];
};
WEFT_ASSERT_SIZE(struct weft_cq_entry, 64);

/** Scatter-gather entry. */
struct weft_sge {
	weft_le64 addr;
	weft_le32 length;
	weft_le32 key;
};
WEFT_ASSERT_SIZE(struct weft_sge, 16);

enum weft_wr_op {
	WEFT_WR_SEND = 0,
	WEFT_WR_SEND_IMM = 1,
	WEFT_WR_SEND_INV = 2,
	WEFT_WR_WRITE = 3,
	WEFT_WR_WRITE_IMM = 4,
	WEFT_WR_READ = 5,
	WEFT_WR_CMP_SWAP = 6,
	WEFT_WR_FETCH_ADD = 7,
	WEFT_WR_REG_MR = 8,
	WEFT_WR_LOCAL_INV = 9,
	WEFT_WR_BIND_MW = 10,
};

#define WEFT_WR_SIGNALED (1u << 0)
#define WEFT_WR_SOLICITED (1u << 1)
#define WEFT_WR_FENCE (1u << 2)
#define WEFT_WR_INLINE (1u << 3) /* `length` bytes follow in place of sges */

/** Send work request: 64 bytes, then up to 12 sges or inline bytes in 1..4 slots of 64 bytes (`slots` in all). */
struct weft_wqe {
	uint8_t op; /* enum weft_wr_op */
	uint8_t slots; /* 1..4 */
	uint8_t sges;
	uint8_t flags; /* WEFT_WR_* */
	weft_le32 imm; /* immediate or key to invalidate, big endian on the wire */
	weft_le64 id;
	weft_le64 remote_addr;
	weft_le32 remote_key;
	weft_le32 length; /* inline */
	union {
		struct {
			weft_le64 compare;
			weft_le64 swap_add;
		} atomic;
		struct {
			weft_le32 dest_qpn;
			weft_le32 qkey;
			weft_le32 ah; /* address handle */
			weft_le32 reserved;
		} ud;
	} u;
	struct weft_sge sge[1]; /* the first; more follow in the next slots */
};
WEFT_ASSERT_SIZE(struct weft_wqe, 64);

/** Receive work request: 64 bytes. */
struct weft_rwqe {
	weft_le64 id;
	uint8_t sges; /* 0..3 */
	uint8_t reserved[7];
	struct weft_sge sge[3];
};
WEFT_ASSERT_SIZE(struct weft_rwqe, 64);

/** Completion: 64 bytes; `owner` is written last and flips with each lap, starting at 1. */
struct weft_cqe {
	weft_le64 id;
	weft_le32 qpn;
	weft_le32 src_qpn;
	weft_le32 length;
	weft_le32 imm;
	weft_le32 error; /* enum weft_error */
	uint8_t op; /* enum weft_wr_op, or 128 + it for a receive */
	uint8_t flags; /* 1: immediate, 2: GRH, 4: invalidated key in imm */
	weft_le16 vlan;
	uint8_t smac[6];
	weft_le16 reserved0;
	weft_le64 timestamp; /* ns of the device clock */
	weft_le64 reserved1;
	uint8_t reserved2[7];
	uint8_t owner;
};
WEFT_ASSERT_SIZE(struct weft_cqe, 64);

#endif
