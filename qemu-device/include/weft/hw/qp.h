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
	WEFT_QP_ETHERNET =
		5, /* raw frames of the port, for a netdev: no header but Ethernet's is the device's affair */
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

#define WEFT_VLAN_NONE 0xffffu
#define WEFT_PKEY_DEFAULT 0xffffu

/** Address vector: the way to a peer, in queue pairs and address handles. */
struct weft_av {
	uint8_t port; /* 0.. */
	uint8_t sgid_index; /* of the port's GID table: source address, VLAN, source MAC; same family as dgid */
	uint8_t traffic_class;
	uint8_t hop_limit; /* 0: 64 */
	weft_le32 flow_label; /* 20 bits */
	uint8_t dmac[6];
	weft_le16 udp_sport; /* 0: from flow label and QPNs */
	uint8_t dgid[16]; /* IPv4 as ::ffff:a.b.c.d */
	uint8_t sl; /* 0..7: priority in the VLAN tag */
	uint8_t reserved[7];
};
WEFT_ASSERT_SIZE(struct weft_av, 40);

/**
 * A queue pair: what the mailbox creates, modifies and reports. CREATE takes ctx, pd, type, flags, av.port, access and,
 * for a channel, sync_base and sync_count, for others their queues; MODIFY what its mask names.
 */
struct weft_qp_entry {
	weft_le32 qpn; /* out of CREATE */
	weft_le32 ctx;
	weft_le32 pd; /* 0..WEFT_PD_MAX */
	weft_le32 flags; /* WEFT_QP_* */
	uint8_t type; /* enum weft_qp_type */
	uint8_t state; /* enum weft_qp_state: wanted in MODIFY, present in QUERY */
	uint8_t path_mtu; /* enum weft_mtu */
	uint8_t timeout; /* local ACK timeout 4.096 us << value; 0: none */
	uint8_t retry_cnt; /* 0..7, or WEFT_RETRY_UNLIMITED */
	uint8_t rnr_retry; /* 0..7, 7: without limit */
	uint8_t min_rnr_timer; /* 0..31, IBTA table 46 */
	uint8_t reserved0;
	uint8_t max_rd_atomic; /* reads and atomics outstanding as requester */
	uint8_t max_dest_rd_atomic; /* as responder */
	weft_le16 pkey; /* 15 bits that are not 0, and membership; WEFT_PKEY_DEFAULT from CREATE on */
	weft_le32 dest_qpn;
	weft_le32 sq_psn; /* 24 bits */
	weft_le32 rq_psn; /* 24 bits */
	weft_le32 qkey;
	weft_le32 access; /* WEFT_RIGHT_REMOTE_* granted to the peer */
	struct weft_av av;
	/* channel: immediate i of a WRITE_IMM raises sync object sync_base + i, i < sync_count */
	weft_le32 sync_base;
	weft_le32 sync_count;
	/* verbs: rings are memory of ctx and pd, named like all memory */
	weft_le32 send_cq;
	weft_le32 recv_cq;
	weft_le32 srq; /* 0: none */
	weft_le32 sq_entries;
	weft_le32 rq_entries;
	weft_le32 sq_key;
	weft_le64 sq_addr;
	weft_le64 rq_addr;
	weft_le32 rq_key;
	weft_le32 error; /* out: enum weft_error that moved it to ERR */
	/* out: what sgid_index named when the path was set */
	uint8_t sgid[16];
	uint8_t smac[6];
	weft_le16 vlan;
	weft_le64 reserved1;
};
WEFT_ASSERT_SIZE(struct weft_qp_entry, 176);
WEFT_ASSERT_OFFSET(struct weft_qp_entry, av, 48);
WEFT_ASSERT_OFFSET(struct weft_qp_entry, sq_addr, 120);
WEFT_ASSERT_OFFSET(struct weft_qp_entry, sgid, 144);

/*
 * In retry_cnt: silence is no death. Time-outs double up to about a second and go on until the queue pair's port stays
 * down (WEFT_ERR_PORT_DOWN) or the network says that the peer is gone (WEFT_ERR_PEER_GONE).
 */
#define WEFT_RETRY_UNLIMITED 8

#define WEFT_QP_SIGNAL_ALL (1u << 0)
#define WEFT_QP_SQD_EVENT (1u << 1) /* an event when the send queue is drained */

/**
 * Which fields a MODIFY carries: the state transition always, and these. What a transition requires and allows is IBTA's
 * (volume 1, section 11.2.5.2, tables "QP state transition properties"); a channel is an RC queue pair there. Others
 * than those named are ignored.
 */
#define WEFT_QPM_PATH (1u << 0) /* av */
#define WEFT_QPM_MTU (1u << 1)
#define WEFT_QPM_DEST (1u << 2) /* dest_qpn */
#define WEFT_QPM_RQ_PSN (1u << 3)
#define WEFT_QPM_SQ_PSN (1u << 4)
#define WEFT_QPM_RETRY (1u << 5) /* timeout, retry_cnt, rnr_retry */
#define WEFT_QPM_RNR_TIMER (1u << 6)
#define WEFT_QPM_QKEY (1u << 7)
#define WEFT_QPM_ACCESS (1u << 8)
#define WEFT_QPM_RD_ATOMIC (1u << 9) /* max_rd_atomic */
#define WEFT_QPM_SYNC (1u << 10) /* sync_base, sync_count: channels, in any transition but those from or to SQD */
#define WEFT_QPM_PKEY (1u << 11)
#define WEFT_QPM_PORT (1u << 12) /* av.port alone */
#define WEFT_QPM_DEST_RD_ATOMIC (1u << 13) /* max_dest_rd_atomic */
#define WEFT_QPM_SQD_EVENT (1u << 14) /* flags & WEFT_QP_SQD_EVENT */
#define WEFT_QPM_ALL ((1u << 15) - 1)

/**
 * Completion queue. RESIZE names it by ctx and cqn and gives key, entries and addr of another ring: completions from
 * then on go there, from slot 0 with owner 1; `producer` of the answer counts those in the old ring, which software
 * takes first.
 */
struct weft_cq_entry {
	weft_le32 cqn; /* out of CREATE */
	weft_le32 ctx;
	weft_le32 key; /* region of PD 0 */
	weft_le32 entries; /* power of two */
	weft_le64 addr;
	weft_le32 vector;
	weft_le32 flags; /* 0 */
	weft_le64 producer; /* out of RESIZE */
	weft_le64 reserved[3];
};
WEFT_ASSERT_SIZE(struct weft_cq_entry, 64);

/** Shared receive queue: a ring of struct weft_rwqe. */
struct weft_srq_entry {
	weft_le32 srqn; /* out of CREATE */
	weft_le32 ctx;
	weft_le32 pd; /* queue pairs of other PDs cannot use it */
	weft_le32 key;
	weft_le64 addr;
	weft_le32 entries; /* power of two */
	weft_le32 limit; /* one event when fewer are posted; 0: none. Set again by MODIFY */
	weft_le32 flags; /* 0 */
	weft_le32 error; /* out: enum weft_error that stopped it */
	weft_le64 reserved[3];
};
WEFT_ASSERT_SIZE(struct weft_srq_entry, 64);

/**
 * Address handle. It is not an object of the device: whoever posts to a UD queue pair puts this entry into the work
 * request, as its second slot. Creating or destroying one is then a matter of software's own memory, so that it never
 * sleeps (the kernel's create_ah is called in atomic context), has no limit, and cannot be wrong for requests that are
 * posted already. The device checks it at each use: pd is the queue pair's (WEFT_ERR_BAD_PD), port too, sgid_index
 * names an entry (WEFT_ERR_BAD_GID).
 */
struct weft_ah_entry {
	weft_le32 pd;
	weft_le32 reserved0;
	struct weft_av av;
	weft_le64 reserved1[2];
};
WEFT_ASSERT_SIZE(struct weft_ah_entry, 64);

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

/**
 * Send work request: 64 bytes, then more sges or inline bytes, in 1..4 slots of 64 bytes (`slots` in all). The second
 * slot is, on a UD or GSI queue pair, struct weft_ah_entry; of REG_MR struct weft_wqe_reg and of BIND_MW struct
 * weft_wqe_bind, which have no sges.
 */
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
			weft_le64 reserved;
		} ud;
	} u;
	struct weft_sge sge[1]; /* the first; more follow in the next slots */
};
WEFT_ASSERT_SIZE(struct weft_wqe, 64);
WEFT_ASSERT_OFFSET(struct weft_wqe, sge, 48);

/** Second slot of REG_MR: gives memory to a region with WEFT_REGION_FAST of the queue pair's PD that is invalid. */
struct weft_wqe_reg {
	weft_le32 key; /* the region's index, with the generation that it has from now on */
	uint8_t rights; /* WEFT_RIGHT_* */
	uint8_t page_shift; /* 12..30 */
	uint8_t reserved0[2];
	weft_le64 va; /* first address that the region answers to */
	weft_le64 length; /* bytes */
	weft_le64 list; /* DMA address of `pages` 64-bit page addresses, as of a region with levels 1 */
	weft_le32 pages; /* at most those it was made for */
	weft_le32 reserved1;
	weft_le64 reserved2[3];
};
WEFT_ASSERT_SIZE(struct weft_wqe_reg, 64);

/**
 * Second slot of BIND_MW (type 2B): binds a window that is invalid. Window, region and queue pair are of one PD, the
 * region grants WEFT_RIGHT_BIND, and the window serves packets of this queue pair only.
 */
struct weft_wqe_bind {
	weft_le32 window; /* key: the window's index, with the generation that it has from now on */
	weft_le32 region; /* key of the region behind it */
	uint8_t rights; /* WEFT_RIGHT_REMOTE_*; write and atomic only where the region grants local WRITE */
	uint8_t zero_based; /* 1: the window answers to addresses from 0 on */
	uint8_t reserved0[6];
	weft_le64 va; /* in the region */
	weft_le64 length;
	weft_le64 reserved1[4];
};
WEFT_ASSERT_SIZE(struct weft_wqe_bind, 64);

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
