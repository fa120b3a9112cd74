/* SPDX-License-Identifier: MIT */
/**
 * Engine: hosts one device model (weft/abi/model.h) in a program that has threads, such as QEMU.
 *
 * One thread a model steps it, drives its Ethernet links, and sleeps when there is nothing to do. Register writes are
 * only queued; a register read first applies the writes before it (PCI's order), then asks the model. A read waits for
 * at most one call into the model; one of write-only registers (struct weft_abi_bar) waits for nothing.
 *
 * Every function may be called from any thread, except that create, start, stop and destroy exclude each other and the
 * rest. The host may hold a lock of its own in all of them: the engine's thread calls the host only through struct
 * weft_engine_host, and none of those functions may wait for that lock. README.md has the order of locks.
 *
 * Between objects of one program, built together: there is no version.
 */
#ifndef WEFT_ENGINE_ENGINE_H
#define WEFT_ENGINE_ENGINE_H

#include <stddef.h>
#include <stdint.h>

#include "weft/abi/model.h"

#ifdef __cplusplus
extern "C" {
#endif

struct weft_engine;

/** What the engine needs of its program. `opaque` comes back as the first argument; all but the marked are required. */
struct weft_engine_host {
	void *opaque;

	/** Device clock, ns, monotonic; may stand still while the engine is quiesced. */
	uint64_t (*clock_ns)(void *opaque);

	/**
	 * Borrow direct memory at bus address `iova`: at most *bytes (in: wanted, 1..WEFT_ABI_MAP_MAX; out: given). NULL
	 * where there is none or the device may not reach it; accesses with side effects must not happen.
	 */
	void *(*dma_map)(void *opaque, uint64_t iova, size_t *bytes, enum weft_abi_dir dir,
			 enum weft_abi_target *target);
	/** Give it back, in the same thread; the first `done` bytes were used, 0: none. */
	void (*dma_unmap)(void *opaque, void *pointer, size_t bytes, enum weft_abi_dir dir, size_t done);

	/** Send MSI-X message `vector`, below the model's number of vectors. */
	void (*irq)(void *opaque, uint32_t vector);
	/** Forget the messages that were sent and not delivered yet: the device is being reset. May be NULL. */
	void (*irq_clear)(void *opaque);

	/** A line for the log, without line end, already limited in rate. May be NULL. */
	void (*log)(void *opaque, enum weft_abi_log_level level, const char *text);
	/** Is this level wanted? NULL: errors and warnings. */
	int (*log_wanted)(void *opaque, enum weft_abi_log_level level);

	/** First and last thing that the engine's thread does. May be NULL. */
	void (*thread_begin)(void *opaque);
	void (*thread_end)(void *opaque);

	/**
	 * Where does the next pass run? 0: in the engine's thread. 1: the host calls weft_engine_pass() from a thread of its
	 * choice, soon, once. QEMU does that where translating a bus address needs its big lock. NULL: always 0.
	 */
	int (*hand_over)(void *opaque);
};

struct weft_engine_config {
	uint32_t options;
	const struct weft_abi_option *option; /* for the model */
	const struct weft_abi_model *model;
	const struct weft_engine_host *host; /* copied */
	/** Name of the device on the fabric: its link i is NAMEpi, NAME cut so that this fits 31 bytes. NULL: the model's name. */
	const char *name;
	/** Path of the switch's UNIX stream socket. NULL or "": links are down until weft_engine_link_fd(). */
	const char *fabric;
	uint32_t budget; /* bytes of work a step; 0: 128 KiB */
};

/** Of one link, since create(). */
struct weft_engine_link_counters {
	uint64_t tx_frames, tx_bytes, rx_frames, rx_bytes;
	uint64_t rx_dropped; /* the model had no room although it gave the credit, or the link was down */
	uint64_t connects; /* times that the link came up */
};

struct weft_engine_counters {
	uint64_t writes; /* register writes queued */
	uint64_t writes_inline; /* of these, applied by the writer because the queue was full */
	uint64_t reads;
	uint64_t steps;
	uint64_t sleeps; /* times the thread waited with nothing to do */
	uint64_t irqs;
	uint64_t irqs_refused; /* vector out of range */
	uint64_t maps_leaked; /* DMA maps that the model did not give back in time */
	uint64_t log_suppressed;
	struct weft_abi_dma_counters dma;
};

/**
 * Create model and engine; nothing runs before start(). 0 or a negative errno value, then `message` (if not NULL) has a
 * text of at most `room` bytes, ended by 0. -EPROTO: the model does not speak WEFT_ABI_VERSION.
 */
int weft_engine_create(const struct weft_engine_config *config, struct weft_engine **engine, char *message,
		       size_t room);
/** What the model is; the engine has checked that numbers are sane (BARs, vectors, links). */
void weft_engine_info(struct weft_engine *engine, struct weft_abi_info *info);
/** Memory behind RAM BAR `bar`. `fd`: the memory's file, whose offset 0 is `base`, for discarding; -1: none. */
int weft_engine_attach_ram(struct weft_engine *engine, uint32_t bar, void *base, uint64_t bytes, int fd);
/** Start the thread. 0 or a negative errno value. */
int weft_engine_start(struct weft_engine *engine);
/** End the thread, within a step. Reads, writes and resets still work; nothing moves any more. */
void weft_engine_stop(struct weft_engine *engine);
/** stop(), then the end of model and engine. NULL is ignored. */
void weft_engine_destroy(struct weft_engine *engine);

uint64_t weft_engine_read(struct weft_engine *engine, uint32_t bar, uint64_t offset, uint32_t bytes);
void weft_engine_write(struct weft_engine *engine, uint32_t bar, uint64_t offset, uint64_t value, uint32_t bytes);

/** Reset. Writes and interrupts before it that still wait are forgotten, those after it are the reset device's. */
int weft_engine_reset(struct weft_engine *engine, enum weft_abi_reset kind);
/** Stop and go on; each may be called when it is already so. */
int weft_engine_quiesce(struct weft_engine *engine);
int weft_engine_resume(struct weft_engine *engine);
/** Plant a fault; -ENOENT: unknown to the model. */
int weft_engine_fault(struct weft_engine *engine, const char *name, const uint64_t *value, uint32_t values);

/** Connect link `link` to a stream socket whose other end speaks weft/fabric/link.hpp. Takes the descriptor. */
int weft_engine_link_fd(struct weft_engine *engine, uint32_t link, int fd);

/** See struct weft_engine_host.hand_over. Bounded work; returns at once when nothing was handed over. */
void weft_engine_pass(struct weft_engine *engine);

void weft_engine_get_counters(struct weft_engine *engine, struct weft_engine_counters *counters);
int weft_engine_get_link_counters(struct weft_engine *engine, uint32_t link,
				  struct weft_engine_link_counters *counters);

#ifdef __cplusplus
}
#endif

#endif
