/* SPDX-License-Identifier: MIT */
/**
 * Accounting: what the device did, independent of order. Each counter is 64 bits, counts up and survives until a reset of the
 * device. Names are the same in the register window, `weft-smi`, JSON and the time model.
 */
#ifndef WEFT_HW_COUNTERS_H
#define WEFT_HW_COUNTERS_H

/**
 * X(name, text). New ones go to the end. The host_* block is what the front end, not the model, has seen go through
 * its DMA calls: control (rings, shadows, firmware) or payload, to guest RAM or to another device's BAR.
 */
#define WEFT_COUNTERS(X)                                                                                               \
	X(doorbells, "queue doorbells rung")                                                                           \
	X(host_signals, "sync objects raised by the host")                                                             \
	X(interrupts, "MSI-X messages sent")                                                                           \
	X(commands, "commands completed")                                                                              \
	X(commands_failed, "commands failed")                                                                          \
	X(copy_bytes, "bytes copied")                                                                                  \
	X(fill_bytes, "bytes filled")                                                                                  \
	X(reduce_bytes, "result bytes of reductions")                                                                  \
	X(rdma_bytes, "payload bytes of RDMA commands completed")                                                      \
	X(copy_ops, "copies")                                                                                          \
	X(fill_ops, "fills")                                                                                           \
	X(reduce_ops, "reductions")                                                                                    \
	X(rdma_ops, "RDMA commands completed")                                                                         \
	X(hbm_read_bytes, "bytes read from HBM")                                                                       \
	X(hbm_write_bytes, "bytes written to HBM")                                                                     \
	X(sync_signals, "sync object signals")                                                                         \
	X(mbox_requests, "mailbox requests answered")                                                                  \
	X(events, "events written")                                                                                    \
	X(events_lost, "events lost: queue full")                                                                      \
	X(mmio_unknown, "accesses to unlisted registers")                                                              \
	X(err_bad_op, "errors: unknown operation")                                                                     \
	X(err_bad_field, "errors: bad field, version or type")                                                         \
	X(err_bad_key, "errors: bad key")                                                                              \
	X(err_bad_range, "errors: range outside its region")                                                           \
	X(err_bad_rights, "errors: access not granted")                                                                \
	X(err_bad_sync, "errors: bad sync object")                                                                     \
	X(err_bad_channel, "errors: bad channel")                                                                      \
	X(err_dma, "errors: host memory not reachable")                                                                \
	X(err_other, "errors: others")                                                                                 \
	X(dma_freed, "accesses that named a destroyed region")                                                         \
	X(host_control_read_bytes, "control bytes read from guest RAM")                                                \
	X(host_control_write_bytes, "control bytes written to guest RAM")                                              \
	X(host_payload_read_bytes, "payload bytes read from guest RAM")                                                \
	X(host_payload_write_bytes, "payload bytes written to guest RAM")                                              \
	X(peer_payload_read_bytes, "payload bytes read from other devices")                                            \
	X(peer_payload_write_bytes, "payload bytes written to other devices")                                          \
	X(host_dma_errors, "DMA refused: not direct RAM")                                                              \
	X(err_bad_pd, "errors: key of another protection domain")                                                      \
	X(err_key_invalid, "errors: region or window that is allocated but invalid")                                   \
	X(err_bad_gid, "errors: no such source GID")                                                                   \
	X(err_unsupported, "errors: not offered by this device")

enum weft_counter {
#define WEFT_COUNTER_ENUM(name, text) WEFT_CTR_##name,
	WEFT_COUNTERS(WEFT_COUNTER_ENUM)
#undef WEFT_COUNTER_ENUM
		WEFT_CTR_COUNT
};

/** X(name, text): of a port. */
#define WEFT_PORT_COUNTERS(X)                                                                                          \
	X(tx_frames, "frames sent")                                                                                    \
	X(tx_bytes, "bytes sent, Ethernet header to ICRC")                                                             \
	X(tx_payload_bytes, "RDMA payload bytes sent, repeats included")                                               \
	X(rx_frames, "frames received")                                                                                \
	X(rx_bytes, "bytes received")                                                                                  \
	X(rx_payload_bytes, "RDMA payload bytes accepted")                                                             \
	X(tx_acks, "acknowledgements sent")                                                                            \
	X(rx_acks, "acknowledgements received")                                                                        \
	X(tx_naks, "NAKs sent")                                                                                        \
	X(rx_naks, "NAKs received")                                                                                    \
	X(tx_rnr_naks, "receiver-not-ready NAKs sent")                                                                 \
	X(rx_rnr_naks, "receiver-not-ready NAKs received")                                                             \
	X(retransmits, "packets sent again")                                                                           \
	X(timeouts, "acknowledgement time-outs")                                                                       \
	X(rx_duplicates, "duplicate requests received")                                                                \
	X(rx_out_of_order, "requests ahead of the expected PSN")                                                       \
	X(drop_icrc, "dropped: ICRC wrong")                                                                            \
	X(drop_malformed, "dropped: not well-formed")                                                                  \
	X(drop_not_mine, "dropped: other MAC or IP address")                                                           \
	X(drop_no_qp, "dropped: no such queue pair")                                                                   \
	X(drop_state, "dropped: queue pair not in a state to receive")                                                 \
	X(drop_peer, "dropped: source is not the connected peer")                                                      \
	X(drop_unsupported, "dropped: opcode not offered")                                                             \
	X(tx_stalls, "times a frame waited for link credit")                                                           \
	X(ecn_marked, "frames received with CE")                                                                       \
	X(cnp_sent, "congestion notifications sent")                                                                   \
	X(cnp_received, "congestion notifications received")                                                           \
	X(qp_errors, "queue pairs moved to the error state")                                                           \
	X(drop_not_roce, "dropped: not RoCE v2")                                                                       \
	X(drop_pkey, "dropped: partition key of another partition")

enum weft_port_counter {
#define WEFT_PORT_COUNTER_ENUM(name, text) WEFT_PCTR_##name,
	WEFT_PORT_COUNTERS(WEFT_PORT_COUNTER_ENUM)
#undef WEFT_PORT_COUNTER_ENUM
		WEFT_PCTR_COUNT
};

#endif
