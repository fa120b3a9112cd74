// SPDX-License-Identifier: MIT
// Accelerators of the simulator with one communicator over all of them.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "wccl/wccl.h"
#include "weft/sim.h"
#include "weft/weft.h"

namespace weft::ccl::test {

// A variable of the environment, for a while.
struct Environment {
  Environment(const char* name, const char* value) : name_(name) { setenv(name, value, 1); }
  ~Environment() { unsetenv(name_); }
  const char* name_;
};

struct ClusterOptions {
  std::uint32_t devices = 2;
  std::uint32_t ports = 1;
  std::uint64_t hbm = 64 << 20;
  std::uint64_t seed = 1;
  double loss = 0;
  int timeout_ms = 30000;
  bool connect = true;
};

class Cluster {
 public:
  explicit Cluster(const ClusterOptions& options) : options_(options) {
    weft_sim_config config{};
    config.size = sizeof config;
    config.devices = options.devices;
    config.ports = options.ports;
    config.hbm_bytes = options.hbm;
    config.seed = options.seed;
    config.loss = options.loss;
    if (weft_sim_start(&config) != 0) throw std::runtime_error(weft_last_error());
    for (std::uint32_t i = 0; i < options.devices; ++i) {
      weft_device* device = nullptr;
      if (weft_device_open(("sim:" + std::to_string(i)).c_str(), &device) != 0)
        throw std::runtime_error(weft_last_error());
      devices.push_back(device);
    }
    if (options.connect && connect() != wcclSuccess) throw std::runtime_error(wcclGetLastError(nullptr));
  }

  ~Cluster() {
    for (wcclComm_t comm : comms) wcclCommDestroy(comm);
    for (weft_mem* mem : memory) weft_mem_free(mem);
    for (weft_device* device : devices) weft_device_close(device);
    EXPECT_EQ(weft_sim_stop(), 0);
  }

  wcclResult_t connect() {
    wcclConfig_t config = WCCL_CONFIG_INITIALIZER;
    config.timeoutMs = options_.timeout_ms;
    comms.assign(devices.size(), nullptr);
    const wcclResult_t result =
        wcclCommInitAllConfig(comms.data(), static_cast<int>(devices.size()), devices.data(), &config);
    if (result != wcclSuccess) comms.clear();
    return result;
  }

  // HBM of device `i`, until the end of the cluster.
  void* allocate(std::size_t i, std::size_t bytes) {
    weft_mem* mem = nullptr;
    if (weft_mem_alloc(devices[i], bytes, 0, &mem) != 0) throw std::runtime_error(weft_last_error());
    memory.push_back(mem);
    return reinterpret_cast<void*>(weft_mem_va(mem));
  }

  template <class T>
  void write(std::size_t i, void* to, const std::vector<T>& from) {
    if (from.empty()) return;
    ASSERT_EQ(weft_write(devices[i], reinterpret_cast<weft_va>(to), from.data(), from.size() * sizeof(T)), 0)
        << weft_last_error();
  }
  template <class T>
  std::vector<T> read(std::size_t i, const void* from, std::size_t count) {
    std::vector<T> out(count);
    if (count) {
      EXPECT_EQ(weft_read(devices[i], out.data(), reinterpret_cast<weft_va>(from), count * sizeof(T)), 0)
          << weft_last_error();
    }
    return out;
  }
  std::uint64_t counter(std::size_t i, weft_counter which) {
    std::uint64_t value[WEFT_CTR_COUNT] = {};
    weft_counters(devices[i], -1, value, WEFT_CTR_COUNT);
    return value[which];
  }

  std::vector<weft_device*> devices;
  std::vector<wcclComm_t> comms;
  std::vector<weft_mem*> memory;

 private:
  ClusterOptions options_;
};

}  // namespace weft::ccl::test
