// SPDX-License-Identifier: MIT
// The C interface: nothing but the way in, and no exception out.
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>
#include <system_error>

#include "engine.hpp"
#include "weft/engine/engine.h"

using weft::engine::Engine;

struct weft_engine {
  explicit weft_engine(const weft_engine_config& config) : engine(config) {}
  Engine engine;
};

extern "C" {

int weft_engine_create(const weft_engine_config* config, weft_engine** engine, char* message, size_t room) {
  const auto refuse = [&](int error, std::string_view text) {
    if (message != nullptr && room > 0) {
      const size_t n = std::min(text.size(), room - 1);
      std::memcpy(message, text.data(), n);
      message[n] = 0;
    }
    *engine = nullptr;
    return -error;
  };
  const weft_engine_host& host = *config->host;
  if (!host.clock_ns || !host.dma_map || !host.dma_unmap || !host.irq) {
    return refuse(EINVAL, "the host lacks a required function");
  }
  try {
    *engine = std::make_unique<weft_engine>(*config).release();
    return 0;
  } catch (const Engine::Refusal& r) {
    return refuse(r.error, r.message);
  } catch (const std::system_error& e) {
    return refuse(e.code().value(), e.what());
  } catch (const std::bad_alloc&) {
    return refuse(ENOMEM, "out of memory");
  }
}

void weft_engine_info(weft_engine* engine, weft_abi_info* info) { *info = engine->engine.info(); }

int weft_engine_attach_ram(weft_engine* engine, uint32_t bar, void* base, uint64_t bytes, int fd) {
  return engine->engine.attach_ram(bar, base, bytes, fd);
}

int weft_engine_start(weft_engine* engine) { return engine->engine.start(); }
void weft_engine_stop(weft_engine* engine) { engine->engine.stop(); }
void weft_engine_destroy(weft_engine* engine) { std::unique_ptr<weft_engine> end(engine); }

uint64_t weft_engine_read(weft_engine* engine, uint32_t bar, uint64_t offset, uint32_t bytes) {
  return engine->engine.read(bar, offset, bytes);
}
void weft_engine_write(weft_engine* engine, uint32_t bar, uint64_t offset, uint64_t value, uint32_t bytes) {
  engine->engine.write(bar, offset, value, bytes);
}

int weft_engine_reset(weft_engine* engine, weft_abi_reset kind) { return engine->engine.reset(kind); }
int weft_engine_quiesce(weft_engine* engine) { return engine->engine.quiesce(); }
int weft_engine_resume(weft_engine* engine) { return engine->engine.resume(); }
int weft_engine_fault(weft_engine* engine, const char* name, const uint64_t* value, uint32_t values) {
  return engine->engine.fault(name, std::span(value, values));
}

int weft_engine_link_fd(weft_engine* engine, uint32_t link, int fd) {
  return engine->engine.link_fd(link, weft::fabric::Fd(fd));
}

void weft_engine_pass(weft_engine* engine) { engine->engine.handed_over_pass(); }

void weft_engine_get_counters(weft_engine* engine, weft_engine_counters* counters) {
  *counters = engine->engine.counters();
}
int weft_engine_get_link_counters(weft_engine* engine, uint32_t link, weft_engine_link_counters* counters) {
  return engine->engine.link_counters(link, *counters);
}

}  // extern "C"
