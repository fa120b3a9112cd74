/* SPDX-License-Identifier: MIT */
/**
 * wccl: collectives between accelerators, with NCCL's names, semantics and numeric values.
 *
 * Buffers are device addresses (weft_va as pointers) of the communicator's device. Calls that move data enqueue work and return; it
 * is done when wcclCommWait or wcclStreamSynchronize has returned. A communicator runs what is enqueued on it in order. All calls return
 * wcclResult_t; wcclGetLastError has the text of the calling thread's last failure. Every wait ends within the communicator's time
 * limit ($WCCL_TIMEOUT seconds, default 30) with an error that names the rank that was silent, or at once when a rank's process or host
 * is gone. Signals end no wait.
 *
 * Calls that differ between ranks in kind, count, type or reduction, and a receive of another size than its send, end
 * the communicator. A rank that received from one that called something else gets wcclInvalidUsage when it waits, with
 * both ranks and what they called; it tells the others, which get wcclRemoteError with the same text. A rank that
 * received only from ranks that agree with it (from 3 ranks on), or that only sent, may return from its wait for that
 * call before it is told: then its next call fails. What such a call wrote is undefined.
 *
 * Environment: WCCL_COMM_ID=address:port (one communicator at a time), WCCL_JOB_ID (what tells jobs apart, where the launcher's
 * variables do not), WCCL_SOCKET_IFNAME, WCCL_TIMEOUT (s), WCCL_PATH=onchip|peer|staged, WCCL_BUFFSIZE (bytes of a staging
 * slot), WCCL_SLOTS, WCCL_QUEUE_ENTRIES, WCCL_LANES, WCCL_ALGO (all-reduce), WCCL_SCHED_FILE, WCCL_IB_TIMEOUT, WCCL_IB_RETRY_CNT, WCCL_DEBUG=WARN|INFO.
 * Of the paths over a host NIC: WCCL_STAGED_OVER=efa|tcp (default: efa where every rank has one), WCCL_MR_CACHE_ENTRIES and WCCL_MR_CACHE_BYTES (0: no
 * cache), WEFT_OFI (the wrapper's file).
 */
#ifndef WCCL_WCCL_H
#define WCCL_WCCL_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

/* In C++ the enumerations hold any int, as in C: what a caller passes can then be looked at before it is used. */
#ifdef __cplusplus
#define WCCL_INT : int
#else
#define WCCL_INT
#endif

#define WCCL_MAJOR 0
#define WCCL_MINOR 1
#define WCCL_PATCH 0
#define WCCL_VERSION_CODE (WCCL_MAJOR * 10000 + WCCL_MINOR * 100 + WCCL_PATCH)

typedef enum WCCL_INT {
	wcclSuccess = 0,
	wcclUnhandledDeviceError = 1,
	wcclSystemError = 2,
	wcclInternalError = 3,
	wcclInvalidArgument = 4,
	wcclInvalidUsage = 5,
	wcclRemoteError = 6, /* another rank failed or is gone */
	wcclInProgress = 7,
	wcclTimeout = 8,
	wcclNumResults = 9
} wcclResult_t;

typedef enum WCCL_INT {
	wcclInt8 = 0,
	wcclChar = 0,
	wcclUint8 = 1,
	wcclInt32 = 2,
	wcclInt = 2,
	wcclUint32 = 3,
	wcclInt64 = 4,
	wcclUint64 = 5,
	wcclFloat16 = 6,
	wcclHalf = 6,
	wcclFloat32 = 7,
	wcclFloat = 7,
	wcclFloat64 = 8,
	wcclDouble = 8,
	wcclBfloat16 = 9,
	wcclFloat8e4m3 = 10,
	wcclFloat8e5m2 = 11,
	wcclNumTypes = 12
} wcclDataType_t;

/** wcclAvg is the sum, divided by the number of ranks in the last step. */
typedef enum WCCL_INT { wcclSum = 0, wcclProd = 1, wcclMax = 2, wcclMin = 3, wcclAvg = 4, wcclNumOps = 5 } wcclRedOp_t;

/** How bytes go between two ranks. */
typedef enum WCCL_INT {
	wcclPathAuto = 0, /* asked for: whatever is possible, on-chip first */
	wcclPathOnchip = 1, /* the accelerators' own NICs */
	wcclPathPeer = 2, /* a host NIC reads and writes HBM */
	wcclPathStaged = 3, /* through host DRAM */
	wcclNumPaths = 4
} wcclPath_t;

#define WCCL_UNIQUE_ID_BYTES 128
typedef struct {
	char internal[WCCL_UNIQUE_ID_BYTES];
} wcclUniqueId;

typedef struct wcclComm *wcclComm_t;
/** NULL: the default stream, which holds all work of the calls that name no other. */
typedef struct wcclStream *wcclStream_t;
struct weft_device;

/** Start with WCCL_CONFIG_INITIALIZER; WCCL_CONFIG_UNDEF and NULL mean "as the environment says, or the default". */
typedef struct {
	size_t size; /* sizeof(wcclConfig_t) */
	uint32_t magic;
	uint32_t version; /* WCCL_VERSION_CODE of the caller */
	struct weft_device *device; /* NULL: that of wcclSetDevice, else $WEFT_DEVICE is opened and owned */
	int path; /* wcclPath_t */
	int timeoutMs;
	const char *commName; /* in messages */
	const char *stagedOver; /* "efa" or "tcp" */
} wcclConfig_t;
#define WCCL_CONFIG_UNDEF (-0x7fffffff - 1)
#define WCCL_CONFIG_MAGIC 0x6766636cu
#define WCCL_CONFIG_INITIALIZER                                                                                        \
	{sizeof(wcclConfig_t),                                                                                         \
	 WCCL_CONFIG_MAGIC,                                                                                            \
	 WCCL_VERSION_CODE,                                                                                            \
	 NULL,                                                                                                         \
	 WCCL_CONFIG_UNDEF,                                                                                            \
	 WCCL_CONFIG_UNDEF,                                                                                            \
	 NULL,                                                                                                         \
	 NULL}

wcclResult_t wcclGetVersion(int *version);
const char *wcclGetErrorString(wcclResult_t result);
/** Text of the last failure: of `comm`, or with NULL of the calling thread. Valid until the next call. */
const char *wcclGetLastError(wcclComm_t comm);

/** The calling thread's device for communicators without config.device. It must outlive them. */
wcclResult_t wcclSetDevice(struct weft_device *device);

/** Makes this process the meeting point (unless WCCL_COMM_ID names it: then rank 0 is). Hand the id to all ranks. */
wcclResult_t wcclGetUniqueId(wcclUniqueId *uniqueId);
/** Blocks until all ranks called it, or the time limit passed: the error names ranks that did not come. */
wcclResult_t wcclCommInitRank(wcclComm_t *comm, int nranks, wcclUniqueId commId, int rank);
wcclResult_t wcclCommInitRankConfig(wcclComm_t *comm, int nranks, wcclUniqueId commId, int rank, wcclConfig_t *config);
/** All ranks of a communicator in this process, one a device, without sockets or threads. */
wcclResult_t wcclCommInitAll(wcclComm_t *comms, int ndev, struct weft_device *const *devices);
wcclResult_t wcclCommInitAllConfig(wcclComm_t *comms, int ndev, struct weft_device *const *devices,
				   const wcclConfig_t *config);

/**
 * Waits until what was enqueued is done on all ranks. Then only Destroy may follow. Ranks of one process may come in any order, one
 * after the other: the first one speaks for all of them.
 */
wcclResult_t wcclCommFinalize(wcclComm_t comm);
/** Finalizes if that was not done, and frees the communicator, also when it failed. */
wcclResult_t wcclCommDestroy(wcclComm_t comm);
/** Frees the communicator at once, whatever is under way; the other ranks get an error. From any thread; calls that other threads
 * are in return with an error. */
wcclResult_t wcclCommAbort(wcclComm_t comm);
/** wcclSuccess, wcclInProgress, or what the communicator failed with. Never blocks. */
wcclResult_t wcclCommGetAsyncError(wcclComm_t comm, wcclResult_t *asyncError);
wcclResult_t wcclCommCount(wcclComm_t comm, int *count);
wcclResult_t wcclCommUserRank(wcclComm_t comm, int *rank);
/** The device that the communicator works on. */
wcclResult_t wcclCommDevice(wcclComm_t comm, struct weft_device **device);

/** `count` elements of all ranks are reduced into each recvbuff; sendbuff may be recvbuff. */
wcclResult_t wcclAllReduce(const void *sendbuff, void *recvbuff, size_t count, wcclDataType_t datatype, wcclRedOp_t op,
			   wcclComm_t comm, wcclStream_t stream);
/**
 * To and from one peer, in order with other calls for the same peer. Group those that must run together. The first message with a
 * peer waits until that peer is in some call of the communicator.
 */
wcclResult_t wcclSend(const void *sendbuff, size_t count, wcclDataType_t datatype, int peer, wcclComm_t comm,
		      wcclStream_t stream);
wcclResult_t wcclRecv(void *recvbuff, size_t count, wcclDataType_t datatype, int peer, wcclComm_t comm,
		      wcclStream_t stream);
/** Done when all ranks have come to it. */
wcclResult_t wcclBarrier(wcclComm_t comm, wcclStream_t stream);

/** Calls between the two are started together by the last wcclGroupEnd: sends and receives then run at the same time. */
wcclResult_t wcclGroupStart(void);
wcclResult_t wcclGroupEnd(void);

wcclResult_t wcclStreamCreate(wcclStream_t *stream);
wcclResult_t wcclStreamDestroy(wcclStream_t stream);
/** Waits for what was enqueued on the stream; NULL: on the default stream, by any communicator of this process. */
wcclResult_t wcclStreamSynchronize(wcclStream_t stream);
/** Waits for all that was enqueued on the communicator. */
wcclResult_t wcclCommWait(wcclComm_t comm);

/** How bytes go between this rank and `peer`, and why not otherwise. `reason` may be NULL. */
wcclResult_t wcclCommPath(wcclComm_t comm, int peer, wcclPath_t *path, char *reason, size_t room);
const char *wcclPathName(wcclPath_t path);

/** What this rank's communicator has asked for so far. */
typedef struct {
	size_t size; /* sizeof, set by the caller */
	uint64_t collectives; /* and groups of sends and receives */
	uint64_t bytes[wcclNumPaths]; /* payload sent to other ranks, by path */
	uint64_t messages[wcclNumPaths];
	uint64_t cpuCopies; /* times that a CPU copied payload */
	uint64_t hostDramBytes; /* payload bytes that went into or out of host DRAM */
	uint64_t doorbells;
	uint64_t commands;
	uint64_t stagingBytes; /* HBM for staging slots */
	uint32_t connections;
	uint32_t syncObjects;
	uint32_t slots;
	uint32_t slotBytes;
	char transport[32]; /* "roce", or what libfabric calls it: "efa-direct", "efa", "tcp" */
	uint64_t flushes; /* reads through the host NIC that made peers' writes visible */
	/* Registrations of this communicator's buffers with the host NIC, and its cache of them. */
	uint64_t mrHits;
	uint64_t mrMisses;
	uint64_t mrEvictions;
	uint64_t mrInvalidations; /* the memory was freed */
	uint64_t mrRegistrations;
	uint64_t mrRegistrationNs; /* spent in them */
	uint64_t mrTeardowns;
	uint64_t mrTeardownNs;
	uint64_t mrEntries; /* now */
	uint64_t mrBytes;
	uint64_t
		callRecords; /* sent ahead of messages to compare calls, 40 bytes each; not in bytes or messages above */
} wcclStats_t;
wcclResult_t wcclCommStats(wcclComm_t comm, wcclStats_t *stats);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif

#endif
