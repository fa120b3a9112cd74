/* SPDX-License-Identifier: MIT */
/**
 * The mailbox: how the driver asks the firmware, and what the firmware tells.
 *
 * One request at a time: fill WEFT_MBOX_REQUEST, write its sequence number to WEFT_REG_MBOX_DOORBELL, wait for that
 * number in WEFT_REG_MBOX_DONE (or vector 0 with WEFT_IRQ_MBOX), read WEFT_MBOX_RESPONSE. Sequence numbers count up,
 * never 0. The firmware checks lengths and reserved fields and authorises; tables, and what may stand in them, are the
 * hardware's.
 *
 * Reserved fields, unused fields and fields marked "out" are 0 in a request, else it ends with WEFT_ERR_BAD_FIELD, so
 * that they can gain a meaning later. What the interface defines and a device does not offer (WEFT_CAP_*) ends with
 * WEFT_ERR_UNSUPPORTED.
 */
#ifndef WEFT_HW_MBOX_H
#define WEFT_HW_MBOX_H

#include "cmd.h"
#include "error.h"
#include "mem.h"
#include "qp.h"
#include "types.h"

#define WEFT_MBOX_VERSION 2
#define WEFT_MBOX_PAYLOAD 240

enum weft_mbox_op {
	WEFT_MBOX_IDENTIFY = 1, /* -> struct weft_mbox_identity */
	WEFT_MBOX_ECHO = 2, /* payload comes back: heartbeat of the driver */
	WEFT_MBOX_PORT_GET = 3, /* struct weft_mbox_index -> struct weft_mbox_port */
	WEFT_MBOX_PORT_SET = 4, /* struct weft_mbox_port_set: MAC, admin state */
	WEFT_MBOX_SENSORS = 5, /* -> struct weft_mbox_sensors */
	WEFT_MBOX_LOG_READ = 6, /* struct weft_mbox_index: first record -> struct weft_mbox_log */
	WEFT_MBOX_EVENT_QUEUE = 7, /* struct weft_mbox_event_queue */
	WEFT_MBOX_HBM_ZERO = 8, /* struct weft_mbox_range; answered when it is done */
	WEFT_MBOX_CTX_CREATE = 16, /* struct weft_mbox_ctx */
	WEFT_MBOX_CTX_DESTROY = 17, /* struct weft_mbox_index: queues, QPs and regions of the context go with it */
	WEFT_MBOX_REGION_CREATE = 18, /* struct weft_region_entry: key chosen by the driver */
	WEFT_MBOX_REGION_DESTROY = 19, /* struct weft_mbox_index: key */
	WEFT_MBOX_QUEUE_CREATE = 20, /* struct weft_queue_entry */
	WEFT_MBOX_QUEUE_DESTROY = 21, /* struct weft_mbox_pair: ctx, queue; answered when nothing of it is in flight */
	WEFT_MBOX_QUEUE_ABORT = 22, /* struct weft_mbox_pair: as a failed command with WEFT_ERR_ABORTED */
	WEFT_MBOX_SYNC_CONFIG = 23, /* struct weft_mbox_sync */
	WEFT_MBOX_QP_CREATE = 24, /* struct weft_qp_entry -> same, with qpn */
	WEFT_MBOX_QP_MODIFY = 25, /* struct weft_mbox_qp_modify */
	WEFT_MBOX_QP_QUERY = 26, /* struct weft_mbox_pair: ctx, qpn -> struct weft_qp_entry */
	WEFT_MBOX_QP_DESTROY = 27, /* struct weft_mbox_pair: ctx, qpn */
	WEFT_MBOX_GID_SET = 28, /* struct weft_mbox_gid: an entry of a port's table, or none there any more */
	WEFT_MBOX_GID_GET = 29, /* struct weft_mbox_gid: port, index -> same */
	/* With WEFT_CAP_VERBS. */
	WEFT_MBOX_CQ_CREATE = 30, /* struct weft_cq_entry -> same, with cqn */
	WEFT_MBOX_CQ_RESIZE = 31, /* struct weft_cq_entry: cqn, and the new ring -> same, with producer */
	WEFT_MBOX_CQ_DESTROY = 32, /* struct weft_mbox_pair: ctx, cqn */
	WEFT_MBOX_SRQ_CREATE = 33, /* struct weft_srq_entry -> same, with srqn */
	WEFT_MBOX_SRQ_MODIFY = 34, /* struct weft_srq_entry: ctx, srqn, limit */
	WEFT_MBOX_SRQ_QUERY = 35, /* struct weft_mbox_pair: ctx, srqn -> struct weft_srq_entry */
	WEFT_MBOX_SRQ_DESTROY = 36, /* struct weft_mbox_pair: ctx, srqn */
	/* With WEFT_CAP_FIFO. */
	WEFT_MBOX_FIFO_CREATE = 37, /* struct weft_fifo_entry */
	WEFT_MBOX_FIFO_DESTROY = 38, /* struct weft_mbox_pair: ctx, fifo */
};

struct weft_mbox_header {
	weft_le32 seq;
	weft_le16 op; /* enum weft_mbox_op; a response repeats it */
	weft_le16 length; /* bytes of payload */
	weft_le16 status; /* response: enum weft_error; request: 0 */
	uint8_t version; /* WEFT_MBOX_VERSION */
	uint8_t reserved[5];
};
WEFT_ASSERT_SIZE(struct weft_mbox_header, 16);

struct weft_mbox_message {
	struct weft_mbox_header head;
	uint8_t payload[WEFT_MBOX_PAYLOAD];
};
WEFT_ASSERT_SIZE(struct weft_mbox_message, 256);

struct weft_mbox_index {
	weft_le32 index;
	weft_le32 reserved;
};
WEFT_ASSERT_SIZE(struct weft_mbox_index, 8);

struct weft_mbox_pair {
	weft_le32 ctx;
	weft_le32 index;
};
WEFT_ASSERT_SIZE(struct weft_mbox_pair, 8);

struct weft_mbox_range {
	weft_le64 offset;
	weft_le64 length;
};
WEFT_ASSERT_SIZE(struct weft_mbox_range, 16);

struct weft_mbox_identity {
	weft_le32 fw_version; /* major << 16 | minor */
	weft_le32 fw_build; /* CRC-32 of the image, 0 when compiled natively */
	weft_le32 hw_version;
	weft_le32 ports;
	weft_le64 uptime_ms;
	uint8_t serial[32]; /* text, zero-filled */
	uint8_t board[32];
	weft_le32 caps; /* WEFT_CAP_*: what the device offers */
	weft_le32 contexts;
	weft_le32 regions;
	weft_le32 qps;
	weft_le32 gids_per_port;
	weft_le32 reserved[3];
};
WEFT_ASSERT_SIZE(struct weft_mbox_identity, 120);

enum weft_port_state {
	WEFT_PORT_DOWN = 1,
	WEFT_PORT_ACTIVE = 4,
};

/** What a port is. Its addresses are those of its GID table; `ipv4` and `ipv6` repeat the first of each kind there. */
struct weft_mbox_port {
	weft_le32 port;
	weft_le32 state; /* enum weft_port_state */
	uint8_t admin_up;
	uint8_t gids; /* entries of the GID table in use */
	uint8_t mac[6];
	uint8_t ipv4[4]; /* 0.0.0.0: none */
	weft_le32 mtu; /* largest path MTU, bytes */
	uint8_t ipv6[16]; /* ::: none */
	weft_le32 speed_mbps;
	weft_le32 flaps;
	weft_le64 reserved[2];
};
WEFT_ASSERT_SIZE(struct weft_mbox_port, 64);

#define WEFT_PORT_SET_ADMIN (1u << 0)
#define WEFT_PORT_SET_MAC (1u << 1)

struct weft_mbox_port_set {
	weft_le32 port;
	uint8_t set; /* WEFT_PORT_SET_*: the fields that count; others are 0 */
	uint8_t admin_up;
	uint8_t mac[6];
	weft_le32 reserved;
};
WEFT_ASSERT_SIZE(struct weft_mbox_port_set, 16);

enum weft_gid_type {
	WEFT_GID_NONE = 0, /* the entry is empty, and all else of it 0 */
	WEFT_GID_ROCE_V2_IPV4 = 1, /* gid is ::ffff:a.b.c.d */
	WEFT_GID_ROCE_V2_IPV6 = 2,
};

/**
 * An entry of a port's GID table: a source address, with the VLAN and MAC that go with it. Address vectors name it by
 * index. Index 0 starts as IPv4 169.254.x.y, index 1 as the IPv6 link-local address of the MAC, the others empty.
 * Connections keep the addresses that they were made with; when no entry has these any more, they lose their peer.
 */
struct weft_mbox_gid {
	weft_le32 port;
	weft_le32 index; /* 0..WEFT_GIDS_PER_PORT - 1 */
	uint8_t type; /* enum weft_gid_type */
	uint8_t reserved0;
	weft_le16 vlan; /* 0..0xffe; WEFT_VLAN_NONE: frames without a tag */
	uint8_t mac[6]; /* all 0: the port's */
	uint8_t reserved1[2];
	uint8_t gid[16];
	weft_le32 reserved2;
};
WEFT_ASSERT_SIZE(struct weft_mbox_gid, 40);

struct weft_mbox_sensors {
	weft_le32 temperature_mc; /* millidegrees Celsius */
	weft_le32 hbm_temperature_mc;
	weft_le32 power_mw;
	weft_le32 voltage_mv;
	weft_le32 clock_mhz;
	weft_le32 reserved[11];
};
WEFT_ASSERT_SIZE(struct weft_mbox_sensors, 64);

struct weft_log_record {
	weft_le32 number; /* counts up from 1 */
	weft_le16 severity; /* 3 error, 4 warning, 6 info: syslog's */
	weft_le16 code;
	weft_le64 time_ms; /* since the firmware started */
	uint8_t text[48];
};
WEFT_ASSERT_SIZE(struct weft_log_record, 64);

struct weft_mbox_log {
	weft_le32 count; /* records here, 0..3; older ones may be gone */
	weft_le32 newest; /* number of the newest record */
	weft_le64 reserved;
	struct weft_log_record record[3];
};
WEFT_ASSERT_SIZE(struct weft_mbox_log, 208);

/** The event queue: a ring of struct weft_event in host memory, made once by the driver. */
struct weft_mbox_event_queue {
	weft_le64 addr; /* DMA address, 64-aligned, contiguous */
	weft_le32 entries; /* power of two, 16..1024 */
	weft_le32 vector; /* 0 */
};
WEFT_ASSERT_SIZE(struct weft_mbox_event_queue, 16);

struct weft_mbox_ctx {
	weft_le32 ctx; /* 0..WEFT_CONTEXTS_MAX - 1 */
	weft_le32 vector; /* MSI-X vector of its sync objects */
	weft_le64 shadow; /* DMA address of u64[WEFT_SYNCS_PER_CONTEXT], or 0 */
	weft_le32 syncs; /* sync objects it may use, 1..WEFT_SYNCS_PER_CONTEXT */
	weft_le32 flags;
	weft_le64 reserved;
};
WEFT_ASSERT_SIZE(struct weft_mbox_ctx, 32);

struct weft_mbox_sync {
	weft_le32 ctx;
	weft_le32 first;
	weft_le32 count;
	weft_le32 flags; /* WEFT_SYNC_NOTIFY: mirror now and on each change */
};
WEFT_ASSERT_SIZE(struct weft_mbox_sync, 16);

struct weft_mbox_qp_modify {
	weft_le32 mask; /* WEFT_QPM_* */
	weft_le32 reserved;
	struct weft_qp_entry qp;
};
WEFT_ASSERT_SIZE(struct weft_mbox_qp_modify, 184);

/**
 * A device-to-host FIFO: commands (WEFT_OP_HOST) that the device writes for a thread of the host. The ring is laid out
 * as a command queue's, with the device as its producer: `completed` of the ring head counts the slots written. The host
 * tells what it took by WEFT_DB_FIFO, and completes a command by adding to its signal_id (WEFT_DB_SIGNAL).
 */
struct weft_fifo_entry {
	weft_le32 ctx;
	weft_le32 fifo; /* 0..WEFT_FIFOS_PER_CONTEXT - 1 */
	weft_le32 pd; /* of the ring's region */
	weft_le32 key;
	weft_le64 addr; /* of struct weft_ring_head, 64-aligned */
	weft_le32 entries; /* slots, a power of two, 16..65536 */
	weft_le32 sync; /* sync object that grows by 1 a command, or WEFT_SYNC_NONE */
	weft_le32 flags; /* 0 */
	weft_le32 reserved0;
	weft_le64 reserved[3];
};
WEFT_ASSERT_SIZE(struct weft_fifo_entry, 64);

/* Events that the hardware tells the driver by itself. */
enum weft_event_type {
	WEFT_EVENT_QUEUE_ERROR = 1, /* ctx, object: queue; error; value: slot index */
	WEFT_EVENT_QP_ERROR = 2, /* ctx, object: QPN; error */
	WEFT_EVENT_PORT = 3, /* object: port; value: enum weft_port_state */
	WEFT_EVENT_LOG = 4, /* value: newest log record */
	WEFT_EVENT_FATAL = 5, /* error; value: BOOT_DETAIL */
	WEFT_EVENT_CQ_OVERRUN = 6, /* ctx, object: CQN */
	WEFT_EVENT_SRQ_LIMIT = 7, /* ctx, object: SRQN */
	WEFT_EVENT_SQ_DRAINED = 8, /* ctx, object: QPN */
};

struct weft_event {
	uint8_t type; /* enum weft_event_type */
	uint8_t owner; /* written last; flips with each lap, starting at 1 */
	weft_le16 error; /* enum weft_error */
	weft_le32 ctx;
	weft_le32 object;
	weft_le32 reserved0;
	weft_le64 value;
	weft_le64 time; /* ns of the device clock */
	weft_le64 reserved1[4];
};
WEFT_ASSERT_SIZE(struct weft_event, 64);

#endif
