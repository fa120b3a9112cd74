/* SPDX-License-Identifier: MIT */
/**
 * libweft_ofi: what the runtime needs of libfabric, behind a table of functions.
 *
 * Nothing links this library or libfabric: weft/ofi_load.h loads it with dlopen and says what is missing when it
 * cannot. It must be what brings libfabric into the process (README.md: foreign verbs devices).
 *
 * One struct weft_ofi is one reliable, connectionless endpoint with its completion queue. Calls return 0 or a count,
 * or a negative errno value; error() has the text of the calling thread's last failure. Nothing blocks but wait().
 * Calls come from any thread; they take turns. Progress is manual: transfers, also those that peers started, get on
 * only inside poll() and wait().
 */
#ifndef WEFT_OFI_H
#define WEFT_OFI_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define WEFT_OFI_VERSION 1u
#define WEFT_OFI_LIBRARY "libweft_ofi.so.0"
#define WEFT_OFI_ENTRY "weft_ofi_entry"
#define WEFT_OFI_ANY UINT32_MAX /* recv: from whichever peer */

struct weft_ofi;
struct weft_ofi_mr;

#define WEFT_OFI_DELIVERY (1u << 0) /* open: a completion means that the peer's memory has the data, on tcp too */

struct weft_ofi_open_args {
	uint32_t size; /* sizeof */
	uint32_t flags; /* WEFT_OFI_DELIVERY */
	const char *provider; /* "efa-direct", "efa" or "tcp" */
	const char *domain; /* as in struct weft_ofi_info, or NULL: the first */
	const char *address; /* tcp: IP address to use, or NULL */
	uint32_t
		tx_depth; /* write, read, send and flush in flight; 0: 128. Lowered to what the provider has, as are the next */
	uint32_t rx_depth; /* posted recv; 0: 128 */
	uint32_t arrivals; /* immediates of peers that may wait for poll(); 0: 1024 */
	uint32_t timeout_ms; /* from post to completion, except recv; 0: 10000 */
};

#define WEFT_OFI_DMABUF (1u << 0) /* registers DMA-BUFs: the NIC itself moves the data */
#define WEFT_OFI_VISIBLE (1u << 1) /* an arrival already means visible: flush is not needed */

struct weft_ofi_info {
	uint32_t size; /* sizeof, set by the caller */
	uint32_t flags; /* WEFT_OFI_DMABUF, WEFT_OFI_VISIBLE */
	uint32_t libfabric; /* version: major << 16 | minor */
	uint32_t tx_depth, rx_depth, arrivals; /* after open: what is granted; from list: what there is, arrivals 0 */
	uint32_t cq_depth; /* tx_depth + rx_depth + arrivals: peers share out `arrivals` among themselves */
	uint32_t address_bytes;
	uint64_t max_send, max_rma; /* bytes a message; from list, max_rma is max_send */
	char provider[16]; /* as it was asked for */
	char domain[64];
	char bdf[16]; /* PCI address of the NIC, or "" */
};

enum weft_ofi_op {
	WEFT_OFI_NONE = 0, /* an error that belongs to no operation of ours */
	WEFT_OFI_WRITE = 1,
	WEFT_OFI_READ = 2,
	WEFT_OFI_SEND = 3,
	WEFT_OFI_RECV = 4,
	WEFT_OFI_FLUSH = 5,
	WEFT_OFI_ARRIVAL = 6, /* a peer's write with immediate is complete here */
};

struct weft_ofi_completion {
	void *context; /* as given to the operation; NULL for ARRIVAL and NONE */
	uint32_t op; /* enum weft_ofi_op */
	int32_t status; /* 0 or a negative errno value; -ETIMEDOUT: memory may be in use until close */
	uint32_t peer; /* of our operations; WEFT_OFI_ANY where it is not known */
	uint32_t immediate; /* of ARRIVAL */
	uint64_t bytes; /* of RECV and ARRIVAL: how many came; else as posted */
	int32_t provider_error; /* the provider's own number, when status is not 0 */
	uint32_t reserved;
	const char *text; /* what failed, in words; NULL when status is 0. Until the next poll or wait */
};

struct weft_ofi_counters {
	uint32_t size; /* sizeof, set by the caller */
	uint32_t in_flight; /* now: write, read, send, flush */
	uint64_t posted, completed, failed;
	uint64_t deferred; /* operations that waited because the provider said "again" */
	uint64_t timeouts; /* within `failed` */
	uint64_t late; /* completions after their time-out, dropped */
	uint64_t arrivals;
	uint64_t bytes_written, bytes_read, bytes_sent, bytes_received;
};

#define WEFT_OFI_LOCAL (1u << 0) /* registration: no peer gets at it */

struct weft_ofi_api {
	uint32_t size;
	uint32_t version; /* WEFT_OFI_VERSION */

	const char *(*error)(void);

	/** Domains of a provider: how many there are (at most `room` are written). -ENODEV: none, error() says why. */
	int (*list)(const char *provider, struct weft_ofi_info *info, size_t room);
	/**
	 * -EINVAL: unknown provider or argument; -ENODEV: no such device or domain; -EADDRNOTAVAIL: not an address of
	 * this machine.
	 */
	int (*open)(const struct weft_ofi_open_args *args, struct weft_ofi **out);
	/** Ends what is in flight and all its registrations. After it no NIC touches the memory. */
	void (*close)(struct weft_ofi *ofi);
	int (*info)(struct weft_ofi *ofi, struct weft_ofi_info *info);
	int (*counters)(struct weft_ofi *ofi, struct weft_ofi_counters *out);

	/** Own address, a blob for insert() on another host; `*bytes`: room in, length out. */
	int (*address)(struct weft_ofi *ofi, void *blob, size_t *bytes);
	int (*insert)(struct weft_ofi *ofi, const void *blob, size_t bytes, uint32_t *peer);
	/** -EBUSY: operations with it are in flight. */
	int (*remove)(struct weft_ofi *ofi, uint32_t peer);

	/** Host memory. It must stay mapped until deregister(). */
	int (*register_host)(struct weft_ofi *ofi, void *base, size_t bytes, unsigned flags, struct weft_ofi_mr **out);
	/**
	 * [offset, offset + bytes) of a DMA-BUF, which the caller may close afterwards. `va` names its first byte
	 * from then on: not 0, no CPU address, congruent to `offset` modulo the page size. The NIC needs fewest pages
	 * when it is congruent to the bus address modulo the largest page, as weft_va is. -EOPNOTSUPP: this provider
	 * moves data with the CPU; -EPERM: the exporter refuses the NIC (no peer-to-peer between the two).
	 */
	int (*register_dmabuf)(struct weft_ofi *ofi, int fd, uint64_t offset, size_t bytes, uint64_t va, unsigned flags,
			       struct weft_ofi_mr **out);
	/** -EBUSY: operations with it are in flight; it stays until this call succeeds, or until close(). */
	int (*deregister)(struct weft_ofi_mr *mr);
	/** What a peer needs for write and read: address of the first byte, and key. */
	int (*remote)(struct weft_ofi_mr *mr, uint64_t *address, uint64_t *key);

	/**
	 * Transfers between [offset, offset + bytes) of a local region and a peer's memory. -EAGAIN: tx_depth are in
	 * flight, poll first; -EMSGSIZE: more than max_rma or max_send; -EINVAL: out of the region. What the provider
	 * cannot take at once waits inside and goes out from poll(). Nothing is ordered, not even data before a later
	 * operation's immediate to the same peer.
	 */
	int (*write)(struct weft_ofi *ofi, uint32_t peer, struct weft_ofi_mr *mr, uint64_t offset, size_t bytes,
		     uint64_t remote_address, uint64_t key, void *context);
	/** With a completion at the peer (ARRIVAL), after the data of this very write. */
	int (*write_immediate)(struct weft_ofi *ofi, uint32_t peer, struct weft_ofi_mr *mr, uint64_t offset,
			       size_t bytes, uint64_t remote_address, uint64_t key, uint32_t immediate, void *context);
	int (*read)(struct weft_ofi *ofi, uint32_t peer, struct weft_ofi_mr *mr, uint64_t offset, size_t bytes,
		    uint64_t remote_address, uint64_t key, void *context);
	/** A DMA-BUF region: -EOPNOTSUPP, since libfabric may copy messages with the CPU (on efa-direct the short ones). */
	int (*send)(struct weft_ofi *ofi, uint32_t peer, struct weft_ofi_mr *mr, uint64_t offset, size_t bytes,
		    void *context);
	/** -EAGAIN: rx_depth are posted. A message that does not fit is an error. Has no time-out. */
	int (*recv)(struct weft_ofi *ofi, uint32_t peer, struct weft_ofi_mr *mr, uint64_t offset, size_t bytes,
		    void *context);
	/**
	 * Reads back a few bytes at `offset` of our own region through the NIC: when it completes, all that the NIC
	 * brought there before it was posted, by peers' writes or by our own reads, is visible in that memory. Needs
	 * a region that peers may read.
	 */
	int (*flush)(struct weft_ofi *ofi, struct weft_ofi_mr *mr, uint64_t offset, void *context);

	/** How many of write, read, send and flush can be posted now. */
	int (*credits)(struct weft_ofi *ofi);
	/** Up to `room` completions, now. Returns how many. */
	int (*poll)(struct weft_ofi *ofi, struct weft_ofi_completion *out, size_t room);
	/** The same, waits until there is one: 0 after `timeout_ms`. */
	int (*wait)(struct weft_ofi *ofi, struct weft_ofi_completion *out, size_t room, uint32_t timeout_ms);
};

/** The table, or NULL when this library does not speak `version`. */
typedef const struct weft_ofi_api *weft_ofi_entry_fn(uint32_t version);

#ifdef __cplusplus
}
#endif

#endif
