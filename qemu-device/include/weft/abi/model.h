/* SPDX-License-Identifier: MIT */
/**
 * Model ABI, version 2: between a device model and whatever hosts it.
 *
 * Shaped like vfio-user. Hosts are the QEMU front end, the in-process simulator, unit tests and fuzzers; models are
 * the accelerator, the host NIC and anybody else's device. A model is a shared or static library that exports one
 * function, weft_model_entry().
 *
 * Rules
 *  - A model is passive: no threads, no clock, no files, no globals. All calls into one model are serialised by the
 *    host, which may make them from different threads; a model never blocks. A host callback may be called only while
 *    the host is inside one of the model's functions, and never calls back into the model.
 *  - Every call does bounded work, since others wait for its end (a register read with QEMU's big lock held): step()
 *    about `budget` bytes, link_receive() one frame, every other call less than a step. DMA, interrupts and link_send()
 *    are allowed in all calls except create(), destroy(), info() and attach_ram().
 *  - After a call that leaves work behind, the model calls wake(). Some hosts step after any call; do not rely on it.
 *  - Calls return 0 or a negative errno value, and throw nothing. Versions and structure sizes must be equal on both
 *    sides; structures that cross start with their size.
 *  - Everything that comes from the guest or a link is untrusted: the model bounds it.
 *
 * Optional. In a model, NULL stands for the behaviour in brackets: attach_ram [no RAM BAR], link_receive, link_ready
 * and link_state [no links], link_pause [a paused link gives no credit, nothing else], link_station [not told],
 * link_receive_ref and link_ref_done [frames by reference are copied into one piece], fault [-ENOENT]. In a host:
 * dma_target [unknown], ram_discard may give -ENOTSUP, link_send_ref -EOPNOTSUPP. All else is required.
 *
 * Not in this version: INTx, PCI capabilities other than PCIe, MSI-X and FLR (power management, AER), and a way to save
 * and load a device's state (migration is refused).
 */
#ifndef WEFT_ABI_MODEL_H
#define WEFT_ABI_MODEL_H

#include <assert.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define WEFT_ABI_VERSION 2u
#define WEFT_ABI_BARS 6

enum weft_abi_bar_kind {
	WEFT_ABI_BAR_NONE = 0,
	WEFT_ABI_BAR_MMIO = 1, /* accesses come to region_read / region_write */
	WEFT_ABI_BAR_RAM =
		2, /* the host allocates it, shares it with the guest and hands the pointer to attach_ram() */
	WEFT_ABI_BAR_MSIX = 3, /* the host's: vector table and PBA */
};

struct weft_abi_bar {
	uint64_t size; /* bytes, a power of two */
	uint32_t kind;
	uint32_t prefetch; /* 1: 64-bit prefetchable */
	uint64_t write_only; /* MMIO: bytes at its end that only take writes; the host reads them as 0 without a call */
};

/** What a model is, told after create(). */
struct weft_abi_info {
	uint32_t size; /* of this structure; the host sets it and clears the rest */
	uint32_t links; /* Ethernet links */
	uint16_t vendor, device, subsystem_vendor, subsystem;
	uint32_t class_code; /* base class << 8 | subclass */
	uint32_t revision;
	uint32_t vectors; /* MSI-X */
	uint32_t frame_max; /* largest Ethernet frame on a link, bytes */
	struct weft_abi_bar bar[WEFT_ABI_BARS];
	const char *name;
};

/** One option of a model, `key=value` on QEMU's command line. Unknown keys are refused by create(). */
struct weft_abi_option {
	const char *key, *value;
};

struct weft_abi_config {
	uint32_t size;
	uint32_t options;
	const struct weft_abi_option *option;
};

/** What a DMA access carries, as the model says; the host finds out by itself where it goes, and counts both. */
enum weft_abi_dma_class {
	WEFT_ABI_DMA_CONTROL = 0, /* rings, shadows, page lists, firmware */
	WEFT_ABI_DMA_PAYLOAD = 1,
};

enum weft_abi_dir {
	WEFT_ABI_FROM_GUEST = 0, /* the device reads */
	WEFT_ABI_TO_GUEST = 1, /* the device writes */
};

/** Largest piece that dma_map() gives. */
#define WEFT_ABI_MAP_MAX 65536u

/** What the host counted of the model's DMA, by target. */
struct weft_abi_dma_counters {
	uint64_t read_bytes[2][2]; /* [enum weft_abi_dma_class][0 guest RAM, 1 another device's memory] */
	uint64_t write_bytes[2][2];
	uint64_t errors; /* accesses refused: not direct memory, or no memory */
};

/** Whose memory a bus address is. */
enum weft_abi_target {
	WEFT_ABI_TARGET_RAM = 0,
	WEFT_ABI_TARGET_DEVICE = 1, /* another device's, or its own, through the bus */
};

struct weft_abi_segment {
	const void *base;
	size_t length;
};

/** Payload in a model's own RAM BAR that a frame names instead of carrying it. */
struct weft_abi_ref {
	uint32_t bar;
	uint32_t reserved; /* 0 */
	uint64_t offset;
	uint64_t bytes;
	uint64_t cookie; /* comes back in link_ref_done() */
};

/** The same as its receiver sees it: readable until the receiver's link_ref_done(). The sender may change it meanwhile. */
struct weft_abi_ref_view {
	const void *base;
	uint64_t bytes;
	uint64_t cookie;
};

enum weft_abi_log_level {
	WEFT_ABI_LOG_ERROR = 3,
	WEFT_ABI_LOG_WARNING = 4, /* a guest's mistake */
	WEFT_ABI_LOG_INFO = 6,
	WEFT_ABI_LOG_TRACE = 7,
};

/** What a host offers a model. `opaque` comes back as the first argument. */
struct weft_abi_host {
	uint32_t size;
	uint32_t version; /* WEFT_ABI_VERSION */
	void *opaque;

	/** Device clock in ns, monotonic; stands still while the machine is stopped. */
	uint64_t (*clock_ns)(void *opaque);
	/** Random bytes; in the simulator from the run's seed. */
	void (*random)(void *opaque, void *buffer, size_t bytes);
	/** There is work: call step() soon. */
	void (*wake)(void *opaque);

	/** Copy from or to bus addresses. -EFAULT where it is not direct memory; then nothing was written. */
	int (*dma_read)(void *opaque, uint64_t iova, void *buffer, size_t bytes, enum weft_abi_dma_class what);
	int (*dma_write)(void *opaque, uint64_t iova, const void *buffer, size_t bytes, enum weft_abi_dma_class what);
	/**
	 * Borrow direct memory: at most *bytes (in: wanted, out: given, at most WEFT_ABI_MAP_MAX). NULL where there is none.
	 * Give it back before the present call into the model returns; `done` bytes were used.
	 */
	void *(*dma_map)(void *opaque, uint64_t iova, size_t *bytes, enum weft_abi_dir dir);
	void (*dma_unmap)(void *opaque, void *pointer, size_t bytes, enum weft_abi_dir dir, size_t done,
			  enum weft_abi_dma_class what);
	void (*dma_counters)(void *opaque, struct weft_abi_dma_counters *out);

	/** Send MSI-X message `vector`. */
	void (*irq)(void *opaque, uint32_t vector);

	/**
	 * Hand a frame (without FCS) to link `link`, priority `cls` 0..7. The bytes are copied or sent before it returns.
	 * -EAGAIN: no credit; link_ready() is called when there is some. -ENETDOWN: link is down.
	 */
	int (*link_send)(void *opaque, uint32_t link, uint32_t cls, const struct weft_abi_segment *segment,
			 uint32_t segments);
	/** `frames` frames of link_receive() have left the model's buffers: the sender may send as many more. */
	void (*link_credit)(void *opaque, uint32_t link, uint32_t cls, uint32_t frames);
	/** Ask the peer to stop or go on with class `cls` (IEEE 802.1Q priority flow control), for lossless classes. */
	void (*link_pause)(void *opaque, uint32_t link, uint32_t cls, int stop);

	/** Contents of RAM BAR `bar` in the range are not needed any more and read as zero from now on. -ENOTSUP: do it by hand. */
	int (*ram_discard)(void *opaque, uint32_t bar, uint64_t offset, uint64_t bytes);

	/** One event for the log: a name from a fixed set and numbers. */
	void (*log)(void *opaque, enum weft_abi_log_level level, const char *event, const uint64_t *value,
		    uint32_t values);

	/** Whose memory is at `iova` (enum weft_abi_target)? -EFAULT: nobody's. */
	int (*dma_target)(void *opaque, uint64_t iova);

	/**
	 * As link_send(), with payload by reference behind `segment`s of headers. It must not change in meaning until
	 * the model's link_ref_done(). -EOPNOTSUPP: this link carries no references (a capture, an impairment, a netdev
	 * or another host is in the way, or the host cannot): use link_send().
	 */
	int (*link_send_ref)(void *opaque, uint32_t link, uint32_t cls, const struct weft_abi_segment *segment,
			     uint32_t segments, const struct weft_abi_ref *payload);
	/** The payload of a frame of link_receive_ref() is not needed any more. */
	void (*link_ref_done)(void *opaque, uint32_t link, uint64_t cookie);
};

enum weft_abi_reset {
	WEFT_ABI_RESET_COLD = 0, /* power: RAM BARs are zero too */
	WEFT_ABI_RESET_FLR = 1, /* function-level, and bus resets: RAM BARs stay */
};

/** What step() leaves. */
struct weft_abi_step {
	uint32_t more; /* 1: call step() again at once */
	uint32_t reserved;
	uint64_t deadline_ns; /* call step() again at this time of clock_ns(); 0 or UINT64_MAX: only after wake() */
};

/** What a model offers. `model` is what create() made. */
struct weft_abi_model {
	uint32_t size;
	uint32_t version; /* WEFT_ABI_VERSION */

	/** Make a device. On error `message` (if not NULL) gets a text of at most `room` bytes that says what to do. */
	int (*create)(const struct weft_abi_host *host, const struct weft_abi_config *config, void **model,
		      char *message, size_t room);
	void (*destroy)(void *model);
	void (*info)(void *model, struct weft_abi_info *info);
	/** The memory behind RAM BAR `bar`; stays until destroy(). */
	int (*attach_ram)(void *model, uint32_t bar, void *base, uint64_t bytes);

	/** BAR access of 1, 2, 4 or 8 bytes, naturally aligned, little-endian; bounds are checked by the model. */
	uint64_t (*region_read)(void *model, uint32_t bar, uint64_t offset, uint32_t bytes);
	void (*region_write)(void *model, uint32_t bar, uint64_t offset, uint64_t value, uint32_t bytes);

	int (*reset)(void *model, enum weft_abi_reset kind);
	/** Stop: after it step() is not called and nothing is in flight; resume() goes on. */
	int (*quiesce)(void *model);
	int (*resume)(void *model);

	/** A frame arrived. -EAGAIN: buffers are full, which a host that keeps to the credits never sees. */
	int (*link_receive)(void *model, uint32_t link, uint32_t cls, const void *frame, size_t bytes);
	void (*link_ready)(void *model, uint32_t link, uint32_t cls);
	void (*link_pause)(void *model, uint32_t link, uint32_t cls, int stop);
	void (*link_state)(void *model, uint32_t link, int up);
	/**
	 * The switch at the other end of `link` says that the station `mac` is gone (`up` 0: its
	 * connection to the switch closed, or its link went down), or that it is back (1). Only the switch can say so. A model
	 * forgets nothing by itself when it is silent here: a station that stands still is not gone. A port that comes up later
	 * does not hear what happened before.
	 */
	void (*link_station)(void *model, uint32_t link, const uint8_t mac[6], int up);

	/**
	 * A frame arrived whose payload is by reference: `head` is the frame up to it. The model copies the payload within
	 * the call or later, and says link_ref_done() to its host. Results as of link_receive().
	 */
	int (*link_receive_ref)(void *model, uint32_t link, uint32_t cls, const void *head, size_t head_bytes,
				const struct weft_abi_ref_view *payload);
	/** Nobody reads the payload of link_send_ref() any more: the receiver is done with it, or the link went down. */
	void (*link_ref_done)(void *model, uint32_t link, uint64_t cookie);

	/** Do work of about `budget` bytes, at least one piece of it if there is any. */
	struct weft_abi_step (*step)(void *model, uint32_t budget);

	/** Plant the fault `name`: see the model's documentation. -ENOENT: unknown. */
	int (*fault)(void *model, const char *name, const uint64_t *value, uint32_t values);
};

static_assert(sizeof(struct weft_abi_bar) == 24, "BAR");
static_assert(sizeof(struct weft_abi_info) == 184, "info");
static_assert(sizeof(struct weft_abi_config) == 16, "config");
static_assert(sizeof(struct weft_abi_dma_counters) == 72, "counters");
static_assert(sizeof(struct weft_abi_ref) == 32, "reference");
static_assert(sizeof(struct weft_abi_ref_view) == 24, "view of a reference");
static_assert(sizeof(struct weft_abi_step) == 16, "step");
static_assert(sizeof(struct weft_abi_host) == 152, "host");
static_assert(sizeof(struct weft_abi_model) == 152, "model");

/** The model in this library, or NULL when it does not speak `version`. */
const struct weft_abi_model *weft_model_entry(uint32_t version);

#ifdef __cplusplus
}
#endif

#endif
