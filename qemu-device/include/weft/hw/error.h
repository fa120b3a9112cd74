/* SPDX-License-Identifier: MIT */
/** Error codes of the device: in queue headers, completion entries, events and mailbox responses. */
#ifndef WEFT_HW_ERROR_H
#define WEFT_HW_ERROR_H

/**
 * X(name, value, text). One list for the enum, the counters and the messages; values never change.
 * 1..31 are about a command or a work request, 32..63 about a connection, 64.. about the mailbox.
 */
#define WEFT_ERRORS(X)                                                                                                 \
	X(OK, 0, "success")                                                                                            \
	X(BAD_OP, 1, "operation unknown or not offered")                                                               \
	X(BAD_VERSION, 2, "command version unknown")                                                                   \
	X(BAD_FIELD, 3, "reserved or impossible field value")                                                          \
	X(BAD_KEY, 4, "key names no region of this context")                                                           \
	X(BAD_RANGE, 5, "address range outside the region")                                                            \
	X(BAD_RIGHTS, 6, "region does not grant the access")                                                           \
	X(BAD_ALIGN, 7, "address or length not aligned as the operation needs")                                        \
	X(BAD_SYNC, 8, "sync object outside the context")                                                              \
	X(BAD_CHANNEL, 9, "queue pair is not a connected channel of this context")                                     \
	X(DMA, 10, "host memory not reachable by direct DMA")                                                          \
	X(BAD_TYPE, 11, "data type or reduction not offered")                                                          \
	X(ABORTED, 12, "aborted by software")                                                                          \
	X(OVERRUN, 13, "producer index further ahead than the ring is long")                                           \
	X(BAD_PD, 14, "key belongs to another protection domain")                                                      \
	X(BAD_GID, 15, "no such source address in the port's GID table, or of the other family")                       \
	X(KEY_INVALID, 16, "region or window is allocated but invalid: not registered, not bound")                     \
	X(LIMIT, 17, "program nested too deep, too long or with too many iterations")                                  \
	X(RETRY_EXCEEDED, 32, "peer silent: transport retries exhausted")                                              \
	X(RNR_EXCEEDED, 33, "peer not ready: receiver-not-ready retries exhausted")                                    \
	X(REMOTE_INVALID, 34, "peer refused the request as invalid")                                                   \
	X(REMOTE_ACCESS, 35, "peer refused the access")                                                                \
	X(REMOTE_OPERATION, 36, "peer failed to execute the request")                                                  \
	X(FLUSHED, 37, "flushed: the queue pair is in the error state")                                                \
	X(LOCAL_LENGTH, 38, "message longer than the receive buffer")                                                  \
	X(PORT_DOWN, 39, "port is down")                                                                               \
	X(PEER_GONE, 40, "the peer's port left the network")                                                           \
	X(MBOX_OP, 64, "mailbox operation unknown")                                                                    \
	X(MBOX_LENGTH, 65, "mailbox payload length wrong for the operation")                                           \
	X(MBOX_BUSY, 66, "object in use")                                                                              \
	X(MBOX_NO_ROOM, 67, "table full")                                                                              \
	X(MBOX_NOT_FOUND, 68, "no such object")                                                                        \
	X(MBOX_STATE, 69, "state transition not allowed")                                                              \
	X(UNSUPPORTED, 70, "defined by the interface, not offered by this device")

enum weft_error {
#define WEFT_ERROR_ENUM(name, value, text) WEFT_ERR_##name = value,
	WEFT_ERRORS(WEFT_ERROR_ENUM)
#undef WEFT_ERROR_ENUM
};

#endif
