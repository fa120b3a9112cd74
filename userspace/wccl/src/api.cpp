// SPDX-License-Identifier: MIT
// The C API: handles, results instead of exceptions, groups and streams.
#include <algorithm>
#include <cstring>
#include <exception>
#include <memory>
#include <mutex>
#include <new>
#include <set>
#include <string>
#include <vector>

#include "bootstrap.hpp"
#include "communicator.hpp"
#include "wccl/wccl.h"

using weft::ccl::Communicator;
using weft::ccl::Failure;

struct wcclComm {
  std::shared_ptr<Communicator> impl;
  std::string text;  // what wcclGetLastError returns
};

// Work that was enqueued on a stream: everything up to a communicator's count at that time.
struct wcclStream {
  std::mutex mutex;
  std::set<wcclComm*> comms;
};

namespace {

thread_local std::string last_error;
thread_local weft_device* current_device = nullptr;

wcclResult_t set_error(wcclResult_t result, std::string text) {
  last_error = std::move(text);
  return result;
}

// Runs `body` and turns what it throws into a result.
template <class F>
wcclResult_t guarded(F&& body) noexcept {
  try {
    body();
    return wcclSuccess;
  } catch (const Failure& failure) {
    return set_error(failure.result(), failure.what());
  } catch (const std::bad_alloc&) {
    return set_error(wcclSystemError, "out of memory");
  } catch (const std::exception& error) {
    return set_error(wcclInternalError, error.what());
  }
}

// Communicators alive in this process, for the default stream and for handles that are none.
class Registry {
 public:
  static Registry& instance() {
    static Registry registry;
    return registry;
  }
  void add(wcclComm* comm) {
    const std::lock_guard lock(mutex_);
    comms_.insert(comm);
  }
  bool remove(wcclComm* comm) {
    const std::lock_guard lock(mutex_);
    return comms_.erase(comm) != 0;
  }
  bool has(wcclComm* comm) {
    const std::lock_guard lock(mutex_);
    return comms_.contains(comm);
  }
  std::vector<wcclComm*> all() {
    const std::lock_guard lock(mutex_);
    return {comms_.begin(), comms_.end()};
  }

 private:
  std::mutex mutex_;
  std::set<wcclComm*> comms_;
};

Communicator& use(wcclComm_t comm) {
  if (!comm || !Registry::instance().has(comm)) throw Failure(wcclInvalidArgument, "not a communicator");
  return *comm->impl;
}

// What a group has collected.
struct GroupOp {
  wcclComm_t comm;
  bool point_to_point;
  weft::ccl::PointToPoint p2p;
  const void *send, *receive;
  std::size_t count;
  wcclDataType_t type;
  wcclRedOp_t op;
  bool barrier;
};
struct Group {
  int depth = 0;
  std::vector<GroupOp> ops;
};
thread_local Group group;

weft_va address(const void* pointer) { return reinterpret_cast<std::uintptr_t>(pointer); }

void run(const GroupOp& op) {
  Communicator& comm = use(op.comm);
  if (op.barrier) {
    comm.barrier();
  } else {
    comm.all_reduce(address(op.send), address(op.receive), op.count, op.type, op.op);
  }
}

wcclResult_t enqueue(GroupOp op, wcclStream_t stream) {
  return guarded([&] {
    use(op.comm);
    if (stream) {
      const std::lock_guard lock(stream->mutex);
      stream->comms.insert(op.comm);
    }
    if (group.depth > 0) {
      group.ops.push_back(op);
    } else if (op.point_to_point) {
      use(op.comm).point_to_point({op.p2p});
    } else {
      run(op);
    }
  });
}

Communicator::Options options_from(const wcclConfig_t* config) {
  Communicator::Options options;
  options.settings = weft::ccl::Settings::from_environment();
  if (!config) return options;
  if (config->size < sizeof(wcclConfig_t) || config->magic != WCCL_CONFIG_MAGIC) {
    throw Failure(wcclInvalidArgument, "the configuration does not start with WCCL_CONFIG_INITIALIZER");
  }
  options.device = config->device;
  if (config->commName) options.name = config->commName;
  if (config->path != WCCL_CONFIG_UNDEF) {
    if (config->path < 0 || config->path >= wcclNumPaths) throw Failure(wcclInvalidArgument, "config.path is no path");
    options.settings.path = static_cast<wcclPath_t>(config->path);
  }
  if (config->timeoutMs != WCCL_CONFIG_UNDEF) {
    if (config->timeoutMs <= 0) throw Failure(wcclInvalidArgument, "config.timeoutMs is not positive");
    options.settings.timeout = std::chrono::milliseconds(config->timeoutMs);
  }
  if (config->stagedOver) options.settings.set_staged_over(config->stagedOver, "config.stagedOver");
  return options;
}

void hand_out(wcclComm_t* out, std::shared_ptr<Communicator> impl) {
  auto comm = std::make_unique<wcclComm>();
  comm->impl = std::move(impl);
  Registry::instance().add(comm.get());
  *out = comm.release();
}

wcclResult_t init_rank(wcclComm_t* comm, int nranks, const wcclUniqueId& id, int rank, const wcclConfig_t* config) {
  return guarded([&] {
    if (!comm) throw Failure(wcclInvalidArgument, "no place for the communicator");
    *comm = nullptr;
    if (nranks < 1 || nranks > 65535 || rank < 0 || rank >= nranks) {
      throw Failure(wcclInvalidArgument, "rank " + std::to_string(rank) + " of " + std::to_string(nranks));
    }
    if (group.depth > 0) {
      throw Failure(wcclInvalidUsage,
                    "wcclCommInitRank blocks, so it cannot be in a group: use wcclCommInitAll or a thread a rank");
    }
    Communicator::Options options = options_from(config);
    if (!options.device) options.device = current_device;
    struct Close {
      void operator()(weft_device* device) const { weft_device_close(device); }
    };
    std::unique_ptr<weft_device, Close> owned;
    if (!options.device) {
      if (weft_device_open(nullptr, &options.device) != 0)
        throw weft::ccl::device_failure("no device for the communicator");
      owned.reset(options.device);
    }
    auto rendezvous = weft::ccl::join_meeting(weft::ccl::decode(id), static_cast<std::uint32_t>(rank),
                                              static_cast<std::uint32_t>(nranks), options.settings.timeout);
    auto impl = Communicator::join(options, static_cast<std::uint32_t>(rank), static_cast<std::uint32_t>(nranks),
                                   std::move(rendezvous));
    if (owned.release()) impl->own_device();
    hand_out(comm, std::move(impl));
  });
}

}  // namespace

wcclResult_t wcclGetVersion(int* version) {
  if (!version) return set_error(wcclInvalidArgument, "no place for the version");
  *version = WCCL_VERSION_CODE;
  return wcclSuccess;
}

const char* wcclGetErrorString(wcclResult_t result) {
  switch (result) {
    case wcclSuccess:
      return "no error";
    case wcclUnhandledDeviceError:
      return "unhandled device error";
    case wcclSystemError:
      return "system error";
    case wcclInternalError:
      return "internal error";
    case wcclInvalidArgument:
      return "invalid argument";
    case wcclInvalidUsage:
      return "invalid usage";
    case wcclRemoteError:
      return "another rank failed or is gone";
    case wcclInProgress:
      return "in progress";
    case wcclTimeout:
      return "time-out";
    default:
      return "unknown result";
  }
}

const char* wcclGetLastError(wcclComm_t comm) {
  if (!comm || !Registry::instance().has(comm)) return last_error.c_str();
  std::string text = comm->impl->last_error();
  if (text.empty()) return last_error.c_str();
  comm->text = std::move(text);
  return comm->text.c_str();
}

wcclResult_t wcclSetDevice(weft_device* device) {
  current_device = device;
  return wcclSuccess;
}

wcclResult_t wcclGetUniqueId(wcclUniqueId* uniqueId) {
  return guarded([&] {
    if (!uniqueId) throw Failure(wcclInvalidArgument, "no place for the id");
    *uniqueId = weft::ccl::encode(weft::ccl::make_meeting(weft::ccl::Settings::from_environment().timeout));
  });
}

wcclResult_t wcclCommInitRank(wcclComm_t* comm, int nranks, wcclUniqueId commId, int rank) {
  return init_rank(comm, nranks, commId, rank, nullptr);
}

wcclResult_t wcclCommInitRankConfig(wcclComm_t* comm, int nranks, wcclUniqueId commId, int rank, wcclConfig_t* config) {
  return init_rank(comm, nranks, commId, rank, config);
}

wcclResult_t wcclCommInitAll(wcclComm_t* comms, int ndev, weft_device* const* devices) {
  return wcclCommInitAllConfig(comms, ndev, devices, nullptr);
}

wcclResult_t wcclCommInitAllConfig(wcclComm_t* comms, int ndev, weft_device* const* devices,
                                   const wcclConfig_t* config) {
  return guarded([&] {
    if (!comms || !devices || ndev < 1 || ndev > 65535) throw Failure(wcclInvalidArgument, "no devices");
    std::fill(comms, comms + ndev, nullptr);
    std::vector<Communicator::Options> options(static_cast<std::size_t>(ndev), options_from(config));
    for (int i = 0; i < ndev; ++i) {
      if (!devices[i]) throw Failure(wcclInvalidArgument, "device " + std::to_string(i) + " is NULL");
      if (std::find(devices, devices + i, devices[i]) != devices + i) {
        throw Failure(wcclInvalidUsage, "device " + std::to_string(i) + " is used twice");
      }
      options[static_cast<std::size_t>(i)].device = devices[i];
    }
    auto made = Communicator::make_all(options);
    for (int i = 0; i < ndev; ++i) hand_out(&comms[i], std::move(made[static_cast<std::size_t>(i)]));
  });
}

wcclResult_t wcclCommFinalize(wcclComm_t comm) {
  return guarded([&] { use(comm).finalize(); });
}

wcclResult_t wcclCommDestroy(wcclComm_t comm) {
  const wcclResult_t result = wcclCommFinalize(comm);
  if (!comm || !Registry::instance().has(comm)) return result;
  comm->impl->shut_down();
  Registry::instance().remove(comm);
  delete comm;
  return result;
}

wcclResult_t wcclCommAbort(wcclComm_t comm) {
  if (!comm || !Registry::instance().has(comm)) return set_error(wcclInvalidArgument, "not a communicator");
  comm->impl->shut_down();
  Registry::instance().remove(comm);
  delete comm;
  return wcclSuccess;
}

wcclResult_t wcclCommGetAsyncError(wcclComm_t comm, wcclResult_t* asyncError) {
  return guarded([&] {
    if (!asyncError) throw Failure(wcclInvalidArgument, "no place for the error");
    *asyncError = use(comm).async_error();
  });
}

wcclResult_t wcclCommCount(wcclComm_t comm, int* count) {
  return guarded([&] {
    if (!count) throw Failure(wcclInvalidArgument, "no place for the count");
    *count = static_cast<int>(use(comm).ranks());
  });
}

wcclResult_t wcclCommUserRank(wcclComm_t comm, int* rank) {
  return guarded([&] {
    if (!rank) throw Failure(wcclInvalidArgument, "no place for the rank");
    *rank = static_cast<int>(use(comm).rank());
  });
}

wcclResult_t wcclCommDevice(wcclComm_t comm, weft_device** device) {
  return guarded([&] {
    if (!device) throw Failure(wcclInvalidArgument, "no place for the device");
    *device = use(comm).device();
  });
}

wcclResult_t wcclAllReduce(const void* sendbuff, void* recvbuff, size_t count, wcclDataType_t datatype, wcclRedOp_t op,
                           wcclComm_t comm, wcclStream_t stream) {
  GroupOp entry{};
  entry.comm = comm;
  entry.send = sendbuff;
  entry.receive = recvbuff;
  entry.count = count;
  entry.type = datatype;
  entry.op = op;
  return enqueue(entry, stream);
}

static wcclResult_t point_to_point(const void* buffer, size_t count, wcclDataType_t datatype, int peer, bool send,
                                   wcclComm_t comm, wcclStream_t stream) {
  const std::uint32_t element = weft::ccl::type_bytes(datatype);
  if (!element) return set_error(wcclInvalidArgument, "unknown data type " + std::to_string(datatype));
  if (peer < 0) return set_error(wcclInvalidArgument, "peer " + std::to_string(peer) + " is not a rank");
  if (count > (std::uint64_t{1} << 42) / element) return set_error(wcclInvalidArgument, "count is too large");
  GroupOp entry{};
  entry.comm = comm;
  entry.point_to_point = true;
  entry.p2p = {send, address(buffer), static_cast<std::uint64_t>(count) * element, static_cast<std::uint32_t>(peer)};
  return enqueue(entry, stream);
}

wcclResult_t wcclSend(const void* sendbuff, size_t count, wcclDataType_t datatype, int peer, wcclComm_t comm,
                      wcclStream_t stream) {
  return point_to_point(sendbuff, count, datatype, peer, true, comm, stream);
}

wcclResult_t wcclRecv(void* recvbuff, size_t count, wcclDataType_t datatype, int peer, wcclComm_t comm,
                      wcclStream_t stream) {
  return point_to_point(recvbuff, count, datatype, peer, false, comm, stream);
}

wcclResult_t wcclBarrier(wcclComm_t comm, wcclStream_t stream) {
  GroupOp entry{};
  entry.comm = comm;
  entry.barrier = true;
  return enqueue(entry, stream);
}

wcclResult_t wcclGroupStart(void) {
  ++group.depth;
  return wcclSuccess;
}

wcclResult_t wcclGroupEnd(void) {
  if (group.depth == 0) return set_error(wcclInvalidUsage, "wcclGroupEnd without wcclGroupStart");
  if (--group.depth > 0) return wcclSuccess;
  const std::vector<GroupOp> ops = std::move(group.ops);
  group.ops.clear();
  return guarded([&] {
    for (const GroupOp& op : ops) {
      if (!op.point_to_point) run(op);
    }
    // All sends and receives of a communicator run as one.
    std::vector<wcclComm_t> done;
    for (const GroupOp& first : ops) {
      if (!first.point_to_point || std::find(done.begin(), done.end(), first.comm) != done.end()) continue;
      done.push_back(first.comm);
      std::vector<weft::ccl::PointToPoint> all;
      for (const GroupOp& op : ops) {
        if (op.point_to_point && op.comm == first.comm) all.push_back(op.p2p);
      }
      use(first.comm).point_to_point(all);
    }
  });
}

wcclResult_t wcclStreamCreate(wcclStream_t* stream) {
  return guarded([&] {
    if (!stream) throw Failure(wcclInvalidArgument, "no place for the stream");
    *stream = new wcclStream;
  });
}

wcclResult_t wcclStreamDestroy(wcclStream_t stream) {
  delete stream;
  return wcclSuccess;
}

wcclResult_t wcclStreamSynchronize(wcclStream_t stream) {
  return guarded([&] {
    std::vector<wcclComm*> comms;
    if (stream) {
      const std::lock_guard lock(stream->mutex);
      comms.assign(stream->comms.begin(), stream->comms.end());
    } else {
      comms = Registry::instance().all();
    }
    for (wcclComm* comm : comms) {
      if (Registry::instance().has(comm)) comm->impl->wait();
    }
    if (stream) {
      const std::lock_guard lock(stream->mutex);
      for (wcclComm* comm : comms) stream->comms.erase(comm);
    }
  });
}

wcclResult_t wcclCommWait(wcclComm_t comm) {
  return guarded([&] { use(comm).wait(); });
}

wcclResult_t wcclCommPath(wcclComm_t comm, int peer, wcclPath_t* path, char* reason, size_t room) {
  return guarded([&] {
    const Communicator& c = use(comm);
    if (!path || peer < 0 || static_cast<std::uint32_t>(peer) >= c.ranks()) {
      throw Failure(wcclInvalidArgument, "peer " + std::to_string(peer) + " is not a rank, or no place for the path");
    }
    const weft::ccl::PathChoice choice = c.path(static_cast<std::uint32_t>(peer));
    *path = choice.path;
    if (reason && room) {
      const std::size_t n = std::min(choice.reason.size(), room - 1);
      std::memcpy(reason, choice.reason.data(), n);
      reason[n] = 0;
    }
  });
}

const char* wcclPathName(wcclPath_t path) { return weft::ccl::path_name(path); }

wcclResult_t wcclCommStats(wcclComm_t comm, wcclStats_t* stats) {
  return guarded([&] {
    if (!stats || stats->size < sizeof(wcclStats_t)) throw Failure(wcclInvalidArgument, "stats.size is not set");
    *stats = {};
    stats->size = sizeof *stats;
    use(comm).stats(*stats);
  });
}
