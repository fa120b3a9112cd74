// SPDX-License-Identifier: MIT
// The C API: handles, results instead of exceptions, groups and streams.
#include <algorithm>
#include <cstddef>
#include <cstring>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "bootstrap.hpp"
#include "communicator.hpp"
#include "wccl/wccl.h"

using weft::ccl::Communicator;
using weft::ccl::Failure;

// A handle is an address and nothing more.
struct wcclComm {};

// Work that was enqueued on a stream: everything up to a communicator's count at that time.
struct wcclStream {
  std::mutex mutex;
  std::set<wcclComm_t> comms;
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

// Communicators alive in this process, by handle.
class Registry {
 public:
  static Registry& instance() {
    static Registry registry;
    return registry;
  }
  wcclComm_t add(std::shared_ptr<Communicator> comm) {
    const std::lock_guard lock(mutex_);
    auto handle = std::make_unique<wcclComm>();
    wcclComm_t out = handle.get();
    comms_[out] = {std::move(handle), std::move(comm)};
    return out;
  }
  // Nothing: not a communicator, or not any more.
  std::shared_ptr<Communicator> find(wcclComm_t comm) {
    const std::lock_guard lock(mutex_);
    const auto it = comms_.find(comm);
    return it == comms_.end() ? nullptr : it->second.second;
  }
  // The first who takes it out frees it.
  std::shared_ptr<Communicator> remove(wcclComm_t comm) {
    const std::lock_guard lock(mutex_);
    const auto it = comms_.find(comm);
    if (it == comms_.end()) return nullptr;
    auto out = std::move(it->second.second);
    comms_.erase(it);
    return out;
  }
  std::vector<wcclComm_t> all() {
    const std::lock_guard lock(mutex_);
    std::vector<wcclComm_t> out;
    for (const auto& [handle, entry] : comms_) out.push_back(handle);
    return out;
  }

 private:
  std::mutex mutex_;
  std::map<wcclComm_t, std::pair<std::unique_ptr<wcclComm>, std::shared_ptr<Communicator>>> comms_;
};

std::shared_ptr<Communicator> use(wcclComm_t comm) {
  auto found = Registry::instance().find(comm);
  if (!found) throw Failure(wcclInvalidArgument, "not a communicator");
  return found;
}

// What a group has collected.
struct GroupOp {
  wcclComm_t comm = nullptr;
  bool point_to_point = false;
  weft::ccl::PointToPoint p2p;
  weft::ccl::Collective collective;
};
struct Group {
  int depth = 0;
  std::vector<GroupOp> ops;
  wcclResult_t result = wcclSuccess;  // of the first call that failed
  std::string text;
};
thread_local Group group;

weft_va address(const void* pointer) { return reinterpret_cast<std::uintptr_t>(pointer); }

wcclResult_t enqueue(const GroupOp& op, wcclStream_t stream) {
  return guarded([&] {
    const auto comm = use(op.comm);
    if (stream) {
      const std::lock_guard lock(stream->mutex);
      stream->comms.insert(op.comm);
    }
    if (group.depth > 0) {
      group.ops.push_back(op);
    } else if (op.point_to_point) {
      comm->run(std::vector{op.p2p});
    } else {
      comm->run(op.collective);
    }
  });
}

// A call that fails within a group fails the group.
wcclResult_t in_group(wcclResult_t result) {
  if (result != wcclSuccess && group.depth > 0 && group.result == wcclSuccess) {
    group.result = result;
    group.text = last_error;
  }
  return result;
}

// All that a group has collected, or nothing of it when something cannot be.
void run_group(const std::vector<GroupOp>& ops) {
  // All sends and receives of a communicator run as one.
  std::vector<std::pair<std::shared_ptr<Communicator>, std::vector<weft::ccl::PointToPoint>>> messages;
  for (const GroupOp& op : ops) {
    auto comm = use(op.comm);
    if (!op.point_to_point) {
      comm->validate(op.collective);
      continue;
    }
    auto it = std::find_if(messages.begin(), messages.end(), [&](const auto& entry) { return entry.first == comm; });
    if (it == messages.end()) it = messages.insert(messages.end(), {std::move(comm), {}});
    it->second.push_back(op.p2p);
  }
  for (const auto& [comm, all] : messages) comm->validate(all);
  for (const GroupOp& op : ops) {
    if (!op.point_to_point) use(op.comm)->run(op.collective);
  }
  for (const auto& [comm, all] : messages) comm->run(all);
}

Communicator::Options options_from(const wcclConfig_t* config) {
  Communicator::Options options;
  options.settings = weft::ccl::Settings::from_environment();
  if (!config) return options;
  // A program built with a later or an earlier header has a longer or a shorter one.
  wcclConfig_t given = WCCL_CONFIG_INITIALIZER;
  if (config->size < offsetof(wcclConfig_t, device) || config->magic != WCCL_CONFIG_MAGIC) {
    throw Failure(wcclInvalidArgument, "the configuration does not start with WCCL_CONFIG_INITIALIZER");
  }
  std::memcpy(&given, config, std::min(config->size, sizeof given));
  config = &given;
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
    const weft::ccl::Meeting meeting = weft::ccl::decode(id);
    auto rendezvous = weft::ccl::join_meeting(meeting, static_cast<std::uint32_t>(rank),
                                              static_cast<std::uint32_t>(nranks), options.settings.timeout);
    auto impl = Communicator::join(options, static_cast<std::uint32_t>(rank), static_cast<std::uint32_t>(nranks),
                                   std::move(rendezvous),
                                   weft::ccl::Family::find(std::string(id.internal, sizeof id.internal)));
    if (owned.release()) impl->own_device();
    *comm = Registry::instance().add(std::move(impl));
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
  const auto found = Registry::instance().find(comm);
  std::string text = found ? found->last_error() : "";
  if (text.empty()) return last_error.c_str();
  thread_local std::string out;
  out = std::move(text);
  return out.c_str();
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
    for (int i = 0; i < ndev; ++i) comms[i] = Registry::instance().add(std::move(made[static_cast<std::size_t>(i)]));
  });
}

wcclResult_t wcclCommFinalize(wcclComm_t comm) {
  return guarded([&] { use(comm)->finalize(); });
}

wcclResult_t wcclCommDestroy(wcclComm_t comm) {
  const wcclResult_t result = wcclCommFinalize(comm);
  // wcclCommAbort may have taken it meanwhile.
  if (const auto taken = Registry::instance().remove(comm)) taken->shut_down();
  return result;
}

wcclResult_t wcclCommAbort(wcclComm_t comm) {
  const auto taken = Registry::instance().remove(comm);
  if (!taken) return set_error(wcclInvalidArgument, "not a communicator");
  taken->shut_down();
  return wcclSuccess;
}

wcclResult_t wcclCommGetAsyncError(wcclComm_t comm, wcclResult_t* asyncError) {
  return guarded([&] {
    if (!asyncError) throw Failure(wcclInvalidArgument, "no place for the error");
    *asyncError = use(comm)->async_error();
  });
}

wcclResult_t wcclCommCount(wcclComm_t comm, int* count) {
  return guarded([&] {
    if (!count) throw Failure(wcclInvalidArgument, "no place for the count");
    *count = static_cast<int>(use(comm)->ranks());
  });
}

wcclResult_t wcclCommUserRank(wcclComm_t comm, int* rank) {
  return guarded([&] {
    if (!rank) throw Failure(wcclInvalidArgument, "no place for the rank");
    *rank = static_cast<int>(use(comm)->rank());
  });
}

wcclResult_t wcclCommDevice(wcclComm_t comm, weft_device** device) {
  return guarded([&] {
    if (!device) throw Failure(wcclInvalidArgument, "no place for the device");
    *device = use(comm)->device();
  });
}

wcclResult_t wcclAllReduce(const void* sendbuff, void* recvbuff, size_t count, wcclDataType_t datatype, wcclRedOp_t op,
                           wcclComm_t comm, wcclStream_t stream) {
  GroupOp entry;
  entry.comm = comm;
  entry.collective = {false, address(sendbuff), address(recvbuff), count, datatype, op};
  return in_group(enqueue(entry, stream));
}

static wcclResult_t point_to_point(const void* buffer, size_t count, wcclDataType_t datatype, int peer, bool send,
                                   wcclComm_t comm, wcclStream_t stream) {
  const std::uint32_t element = weft::ccl::type_bytes(datatype);
  const wcclResult_t result = guarded([&] {
    if (!element) throw Failure(wcclInvalidArgument, "unknown data type " + std::to_string(datatype));
    if (peer < 0) throw Failure(wcclInvalidArgument, "peer " + std::to_string(peer) + " is not a rank");
    if (count > (std::uint64_t{1} << 42) / element) throw Failure(wcclInvalidArgument, "count is too large");
  });
  if (result != wcclSuccess) return in_group(result);
  GroupOp entry;
  entry.comm = comm;
  entry.point_to_point = true;
  entry.p2p = {send, address(buffer), static_cast<std::uint64_t>(count) * element, static_cast<std::uint32_t>(peer),
               element};
  return in_group(enqueue(entry, stream));
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
  GroupOp entry;
  entry.comm = comm;
  entry.collective.barrier = true;
  return in_group(enqueue(entry, stream));
}

wcclResult_t wcclGroupStart(void) {
  ++group.depth;
  return wcclSuccess;
}

wcclResult_t wcclGroupEnd(void) {
  if (group.depth == 0) return set_error(wcclInvalidUsage, "wcclGroupEnd without wcclGroupStart");
  if (--group.depth > 0) return wcclSuccess;
  const Group ended = std::exchange(group, {});
  if (ended.result != wcclSuccess) return set_error(ended.result, ended.text + " (nothing of the group was started)");
  return guarded([&] { run_group(ended.ops); });
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
    std::vector<wcclComm_t> comms;
    if (stream) {
      const std::lock_guard lock(stream->mutex);
      comms.assign(stream->comms.begin(), stream->comms.end());
    } else {
      comms = Registry::instance().all();
    }
    for (wcclComm_t comm : comms) {
      if (const auto found = Registry::instance().find(comm)) found->wait();
    }
    if (stream) {
      const std::lock_guard lock(stream->mutex);
      for (wcclComm_t comm : comms) stream->comms.erase(comm);
    }
  });
}

wcclResult_t wcclCommWait(wcclComm_t comm) {
  return guarded([&] { use(comm)->wait(); });
}

wcclResult_t wcclCommPath(wcclComm_t comm, int peer, wcclPath_t* path, char* reason, size_t room) {
  return guarded([&] {
    const auto c = use(comm);
    if (!path || peer < 0 || static_cast<std::uint32_t>(peer) >= c->ranks()) {
      throw Failure(wcclInvalidArgument, "peer " + std::to_string(peer) + " is not a rank, or no place for the path");
    }
    const weft::ccl::PathChoice choice = c->path(static_cast<std::uint32_t>(peer));
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
    if (!stats || stats->size < offsetof(wcclStats_t, transport)) {
      throw Failure(wcclInvalidArgument, "stats.size is not set");
    }
    // As much as the caller's header knows.
    wcclStats_t now{};
    use(comm)->stats(now);
    now.size = std::min(stats->size, sizeof now);
    std::memcpy(stats, &now, now.size);
  });
}
