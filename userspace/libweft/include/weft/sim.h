/* SPDX-License-Identifier: MIT */
/**
 * The simulator behind "sim:N": N accelerators, their links and a switch in this process, without QEMU and kernel. One deterministic
 * scheduler steps all of them on a virtual clock; it runs inside whichever call waits (weft_sync_wait and its kin). The same seed and
 * the same calls from one thread give the same event log, byte for byte.
 */
#ifndef WEFT_SIM_H
#define WEFT_SIM_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

struct weft_sim_config {
	uint32_t size; /* sizeof */
	uint32_t devices; /* 1..256 */
	uint32_t ports; /* a device */
	uint32_t reserved;
	uint64_t hbm_bytes; /* a device */
	uint64_t seed;
	double loss; /* probability 0..1 that the switch loses a frame */
	const char *log; /* file for the event log, or NULL */
	const char *capture; /* pcapng file, or NULL */
	const char *firmware; /* image for the RISC-V core, or NULL: native */
};

/** Make the process's simulator; -EEXIST when there is one. Without this call, opening "sim:N" makes one with defaults. */
int weft_sim_start(const struct weft_sim_config *config);
/** Close it; all devices must be closed (-EBUSY). */
int weft_sim_stop(void);
/** Cut (up = 0) or mend device `device`'s link of port `port`. */
int weft_sim_link(uint32_t device, uint32_t port, int up);
/** Hash of the event log so far. */
uint64_t weft_sim_hash(void);
/** Virtual time, ns. */
uint64_t weft_sim_time(void);
/** Run until nothing is left to do or `ns` of virtual time passed. */
int weft_sim_run(uint64_t ns);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif

#endif
