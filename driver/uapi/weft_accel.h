/* SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR MIT */
/**
 * ioctls of /dev/accel/accelN as the weft driver gives them.
 *
 * An open file is one hardware context, made by the first call that needs it (-EBUSY: the device has no further
 * one): its memory, queues, sync objects and channels go with it, also after kill -9. INFO, PORT and LOG need none:
 * they work on a device that is full, and on one that failed, INFO and LOG tell what was known last.
 *
 * How structures grow, by one rule: each starts with its size and flags, and `size` is the size that the ioctl's
 * number carries. New fields come at the end, and zero means in them what was so before. So a shorter (older)
 * structure is accepted, what it lacks being zero and not being written; a longer one is accepted when what the
 * driver does not know is zero (-E2BIG otherwise). What a pointer leads to has its size beside the pointer, in
 * bytes (INFO's `bytes`: the driver writes no more, and says how much there is) or as elements of a structure that
 * does not grow. Unknown flags are -EINVAL.
 *
 * After a device reset or removal each call gives -ENODEV (removed), or -EIO (context lost): close and open again.
 * Only CONTEXT tells the state of a lost context. HBM that is mapped then gives SIGBUS; the doorbell page, rings
 * and the shadow array stay harmless: rings say that they are halted once the device is gone, and no shadow value
 * ever counts up any more.
 */
#ifndef WEFT_ACCEL_H
#define WEFT_ACCEL_H

#ifdef __KERNEL__
#include <drm/drm.h>
#else
#include <drm.h> /* pkg-config libdrm */
#endif

#if defined(__cplusplus)
extern "C" {
#endif

#define WEFT_DRIVER_MAJOR 2
#define WEFT_DRIVER_MINOR 0

#define DRM_WEFT_INFO 0x00
#define DRM_WEFT_BO_CREATE 0x01
#define DRM_WEFT_BO_INFO 0x02
#define DRM_WEFT_HOST_REGISTER 0x03
#define DRM_WEFT_HOST_UNREGISTER 0x04
#define DRM_WEFT_SYNC_CREATE 0x05
#define DRM_WEFT_SYNC_DESTROY 0x06
#define DRM_WEFT_QUEUE_CREATE 0x07
#define DRM_WEFT_QUEUE_DESTROY 0x08
#define DRM_WEFT_CHANNEL_CREATE 0x09
#define DRM_WEFT_CHANNEL_CONNECT 0x0a
#define DRM_WEFT_CHANNEL_QUERY 0x0b
#define DRM_WEFT_CHANNEL_DESTROY 0x0c
#define DRM_WEFT_WAIT 0x0d
#define DRM_WEFT_PORT 0x0e
#define DRM_WEFT_LOG 0x0f
#define DRM_WEFT_CONTEXT 0x10

/** Topics of DRM_WEFT_INFO; `data` points at `bytes` bytes, which come back as the size that there is. */
#define WEFT_INFO_DEVICE 0 /* struct drm_weft_device */
#define WEFT_INFO_COUNTERS 1 /* struct drm_weft_counter[]; -EIO when the device does not answer */
#define WEFT_INFO_PORT_COUNTERS 2 /* struct drm_weft_counter[] of port `index` */
#define WEFT_INFO_SENSORS 3 /* struct drm_weft_sensors */
#define WEFT_INFO_HBM 4 /* struct drm_weft_hbm */

struct drm_weft_info {
	__u32 size;
	__u32 flags; /* 0 */
	__u32 topic;
	__u32 index;
	__u64 data; /* pointer */
	__u32 bytes;
	__u32 reserved;
};

#define WEFT_STATE_READY 0
#define WEFT_STATE_RESETTING 1
#define WEFT_STATE_FAILED 2 /* a recovery is tried, or was given up: see the kernel's log */

struct drm_weft_device {
	__u32 hw_version;
	__u32 fw_version;
	__u32 caps; /* WEFT_CAP_* */
	__u32 ports;
	__u64 hbm_bytes;
	__u32 queue_window;
	__u32 syncs; /* of a context */
	__u32 queues; /* of a context */
	__u32 resets; /* since the driver was loaded */
	__u8 serial[32];
	__u8 bdf[16]; /* "0000:03:00.0" */
	__u8 fw_name[32];
	__u32 state; /* WEFT_STATE_* */
	__u32 contexts; /* that files can have */
	__u32 contexts_used;
	__u32 reserved;
};

/** A counter is known by its name (weft/hw/counters.h has their meaning): their order may change. */
struct drm_weft_counter {
	__u8 name[32]; /* text, zero-filled */
	__u64 value;
};

struct drm_weft_sensors {
	__u64 time_ns; /* CLOCK_MONOTONIC of the reading, of the last one on a device that does not answer; 0: never */
	__u32 temperature_mc; /* millidegrees Celsius */
	__u32 hbm_temperature_mc;
	__u32 power_mw;
	__u32 voltage_mv;
	__u32 clock_mhz;
	__u32 reserved;
};

struct drm_weft_hbm {
	__u64 total;
	__u64 used;
	__u64 largest_free;
	__u64 objects;
};

/** The context of this file: what to map and where it stands. mmap offsets are for mmap(2) on the file. */
struct drm_weft_context {
	__u32 size;
	__u32 flags;
	__u32 ctx; /* out: number in the device */
	__u32 state; /* out: 0, or errno of what it was lost to */
	__u64 doorbell_offset; /* out: mmap offset of the doorbell page, 4 KiB, write-only */
	__u64 shadow_offset; /* out: mmap offset of the sync objects' shadow values, __u64[syncs], read-only */
	__u64 shadow_bytes; /* out */
	__u64 generation; /* out: differs for each open and each reset */
};

#define WEFT_BO_REMOTE_READ (1u << 0) /* peers may read it through its key */
#define WEFT_BO_REMOTE_WRITE (1u << 1)

/** HBM, zeroed. Freed with GEM_CLOSE when no export, map or transfer uses it any more. */
struct drm_weft_bo_create {
	__u32 size;
	__u32 flags; /* WEFT_BO_* */
	__u64 bytes; /* in: wanted; out: rounded up to 4 KiB */
	__u64 align; /* 0, or a power of two */
	__u32 handle; /* out: GEM handle; PRIME_HANDLE_TO_FD exports it */
	__u32 key; /* out: region key */
	__u64 va; /* out: device address */
	__u64 mmap_offset; /* out */
	__u64 generation; /* out: of this object, never used twice */
};

struct drm_weft_bo_info {
	__u32 size;
	__u32 flags; /* out: as created */
	__u32 handle;
	__u32 key; /* out */
	__u64 bytes; /* out */
	__u64 va; /* out */
	__u64 mmap_offset; /* out */
	__u64 generation; /* out */
	__u64 hbm_offset; /* out: place in BAR2 */
	__u32 exports; /* out */
	__u32 pins; /* out */
};

#define WEFT_HOST_WRITE (1u << 0) /* the device may write it */

/** Pins user memory and makes it a region; counted against RLIMIT_MEMLOCK. */
struct drm_weft_host_register {
	__u32 size;
	__u32 flags; /* WEFT_HOST_* */
	__u64 address; /* user pointer */
	__u64 bytes;
	__u32 handle; /* out */
	__u32 key; /* out */
	__u64 va; /* out: device address of `address` */
};

struct drm_weft_handle {
	__u32 size;
	__u32 flags; /* 0 */
	__u32 handle;
	__u32 reserved;
};

/** A run of sync objects, numbered first .. first + count - 1; their values go on from earlier use, read the shadow array. */
struct drm_weft_sync_create {
	__u32 size;
	__u32 flags; /* 0 */
	__u32 count;
	__u32 first; /* out */
};

struct drm_weft_sync_destroy {
	__u32 size;
	__u32 flags;
	__u32 first;
	__u32 count;
};

#define WEFT_QUEUE_IN_HBM (1u << 0) /* the ring lies in HBM instead of host memory */

/** A command queue: map ring_offset (struct weft_ring_head, then slots), then ring WEFT_DB_QUEUE(queue). */
struct drm_weft_queue_create {
	__u32 size;
	__u32 flags; /* WEFT_QUEUE_* */
	__u32 entries; /* power of two, 16..65536 */
	__u32 queue; /* out */
	__u64 ring_offset; /* out: mmap offset */
	__u64 ring_bytes; /* out */
};

/** Where a channel's end is. */
struct drm_weft_endpoint {
	__u32 qpn;
	__u32 psn; /* of the first packet that this end sends */
	__u8 mac[6];
	__u8 mtu; /* enum weft_mtu: largest that this end takes */
	__u8 reserved;
	__u8 gid[16]; /* IPv4 as ::ffff:a.b.c.d */
};

struct drm_weft_channel_create {
	__u32 size;
	__u32 flags; /* 0 */
	__u32 port;
	__u32 sync_base; /* peers' immediates raise sync_base + immediate */
	__u32 sync_count;
	__u32 channel; /* out: QPN, as commands name it in key[2] */
	struct drm_weft_endpoint local; /* out */
};

struct drm_weft_channel_connect {
	__u32 size;
	__u32 flags; /* 0 */
	__u32 channel;
	__u8 timeout; /* 4.096 us << timeout; 0: default */
	__u8 retry_cnt; /* 1..7; 0: no limit, silence alone is no error */
	__u16 reserved;
	struct drm_weft_endpoint remote;
};

struct drm_weft_channel_query {
	__u32 size;
	__u32 flags;
	__u32 channel;
	__u32 state; /* out: enum weft_qp_state */
	__u32 error; /* out: enum weft_error */
	__u32 reserved;
};

struct drm_weft_wait_item {
	__u32 sync;
	__u32 reserved;
	__u64 value; /* wait until the object's value >= this */
};

/** What failed. */
#define WEFT_OBJECT_QUEUE 1
#define WEFT_OBJECT_CHANNEL 2
#define WEFT_OBJECT_DEVICE 5

#define WEFT_WAIT_ANY (1u << 0) /* one item is enough; default: all */
#define WEFT_WAIT_LISTED (1u << 1) /* only failures of `queues` and `channels` end the wait; default: of any queue or channel */

/**
 * Waits. 0: what was waited for is there, whatever has failed; -ETIME: time is over; -EIO: a queue or channel
 * failed (`error`, `error_type`, `object` and `value` say which: the first of those that count), or the context is
 * lost; -ENODEV: removed; -EINTR. Numbers in the lists that name nothing do not count.
 */
struct drm_weft_wait {
	__u32 size;
	__u32 flags; /* WEFT_WAIT_* */
	__u64 items; /* pointer to struct drm_weft_wait_item */
	__u32 count; /* 1..64 */
	__u32 index; /* out with ANY: which */
	__s64 deadline_ns; /* CLOCK_MONOTONIC; negative: none; 0: just look */
	__u32 error; /* out: enum weft_error */
	__u32 error_type; /* out: WEFT_OBJECT_* */
	__u32 object; /* out: number of the queue, or QPN of the channel */
	__u32 reserved;
	__u64 value; /* out: slot index of the failed command */
	__u64 queues; /* with LISTED: pointer to __u32[queue_count], numbers */
	__u64 channels; /* with LISTED: pointer to __u32[channel_count], QPNs */
	__u32 queue_count; /* both together: 0..4096 */
	__u32 channel_count;
};

/** An entry of a port's GID table that is in use: an address, with the VLAN and MAC that go with it. */
struct drm_weft_gid {
	__u32 index; /* in the table; address vectors name it */
	__u8 type; /* enum weft_gid_type: RoCE v2 over IPv4 or IPv6 */
	__u8 reserved;
	__u16 vlan; /* WEFT_VLAN_NONE: frames without a tag */
	__u8 mac[6]; /* all 0: the port's */
	__u8 reserved1[2];
	__u8 gid[16]; /* IPv4 as ::ffff:a.b.c.d */
};

/** What a port is; `ipv4` and `ipv6` repeat the first of each kind in its GID table. */
struct drm_weft_port {
	__u32 size;
	__u32 flags; /* 0 */
	__u32 port;
	__u32 state; /* out: enum weft_port_state */
	__u8 mac[6]; /* out */
	__u8 admin_up; /* out */
	__u8 reserved;
	__u8 ipv4[4]; /* out; 0: none */
	__u8 ipv6[16]; /* out; 0: none */
	__u32 mtu; /* out: bytes of payload a packet */
	__u32 speed_mbps; /* out */
	__u32 flaps; /* out: times that the link went down */
	__u32 gid_count; /* in: room at `gids`; out: entries in use */
	__u32 reserved1; /* 0 */
	__u64 gids; /* pointer to struct drm_weft_gid, gets as many as there is room for; 0: none wanted */
};

/** A record of the firmware's log. */
struct drm_weft_log_record {
	__u32 number; /* counts up from 1 */
	__u16 severity; /* 3 error, 4 warning, 6 info: syslog's */
	__u16 code;
	__u64 time_ms; /* since the firmware started */
	__u8 text[64]; /* zero-filled, ends with a zero */
};

struct drm_weft_log {
	__u32 size;
	__u32 flags;
	__u32 first; /* in: record to start with; out: first that is here */
	__u32 count; /* in: room; out: records */
	__u64 records; /* pointer to struct drm_weft_log_record */
};

#define DRM_IOCTL_WEFT_INFO DRM_IOWR(DRM_COMMAND_BASE + DRM_WEFT_INFO, struct drm_weft_info)
#define DRM_IOCTL_WEFT_BO_CREATE DRM_IOWR(DRM_COMMAND_BASE + DRM_WEFT_BO_CREATE, struct drm_weft_bo_create)
#define DRM_IOCTL_WEFT_BO_INFO DRM_IOWR(DRM_COMMAND_BASE + DRM_WEFT_BO_INFO, struct drm_weft_bo_info)
#define DRM_IOCTL_WEFT_HOST_REGISTER DRM_IOWR(DRM_COMMAND_BASE + DRM_WEFT_HOST_REGISTER, struct drm_weft_host_register)
#define DRM_IOCTL_WEFT_HOST_UNREGISTER DRM_IOWR(DRM_COMMAND_BASE + DRM_WEFT_HOST_UNREGISTER, struct drm_weft_handle)
#define DRM_IOCTL_WEFT_SYNC_CREATE DRM_IOWR(DRM_COMMAND_BASE + DRM_WEFT_SYNC_CREATE, struct drm_weft_sync_create)
#define DRM_IOCTL_WEFT_SYNC_DESTROY DRM_IOWR(DRM_COMMAND_BASE + DRM_WEFT_SYNC_DESTROY, struct drm_weft_sync_destroy)
#define DRM_IOCTL_WEFT_QUEUE_CREATE DRM_IOWR(DRM_COMMAND_BASE + DRM_WEFT_QUEUE_CREATE, struct drm_weft_queue_create)
#define DRM_IOCTL_WEFT_QUEUE_DESTROY DRM_IOWR(DRM_COMMAND_BASE + DRM_WEFT_QUEUE_DESTROY, struct drm_weft_handle)
#define DRM_IOCTL_WEFT_CHANNEL_CREATE DRM_IOWR(DRM_COMMAND_BASE + DRM_WEFT_CHANNEL_CREATE, struct drm_weft_channel_create)
#define DRM_IOCTL_WEFT_CHANNEL_CONNECT DRM_IOWR(DRM_COMMAND_BASE + DRM_WEFT_CHANNEL_CONNECT, struct drm_weft_channel_connect)
#define DRM_IOCTL_WEFT_CHANNEL_QUERY DRM_IOWR(DRM_COMMAND_BASE + DRM_WEFT_CHANNEL_QUERY, struct drm_weft_channel_query)
#define DRM_IOCTL_WEFT_CHANNEL_DESTROY DRM_IOWR(DRM_COMMAND_BASE + DRM_WEFT_CHANNEL_DESTROY, struct drm_weft_handle)
#define DRM_IOCTL_WEFT_WAIT DRM_IOWR(DRM_COMMAND_BASE + DRM_WEFT_WAIT, struct drm_weft_wait)
#define DRM_IOCTL_WEFT_PORT DRM_IOWR(DRM_COMMAND_BASE + DRM_WEFT_PORT, struct drm_weft_port)
#define DRM_IOCTL_WEFT_LOG DRM_IOWR(DRM_COMMAND_BASE + DRM_WEFT_LOG, struct drm_weft_log)
#define DRM_IOCTL_WEFT_CONTEXT DRM_IOWR(DRM_COMMAND_BASE + DRM_WEFT_CONTEXT, struct drm_weft_context)

#if defined(__cplusplus)
}
#endif

#endif
