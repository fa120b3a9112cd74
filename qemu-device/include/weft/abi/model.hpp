// SPDX-License-Identifier: MIT
// A C++ class as a device model: the table of weft/abi/model.h over its member functions.
#pragma once

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <memory>
#include <new>
#include <span>

#include "weft/abi/model.h"

namespace weft::abi
{

// `Device` has info, attach_ram, region_read, region_write, reset, quiesce, resume, link_receive, link_ready, link_state and
// step, with the table's arguments, and may have fault(name, values) and
// link_station(link, mac, up). `make` returns it as a std::unique_ptr; what it
// throws becomes the message of create(): -ENOMEM for std::bad_alloc, else -EINVAL. Bus memory is reached through the
// host's calls only, and a paused link simply gives no credit, which link_ready() ends.
template <class Device, std::unique_ptr<Device> (*make)(const weft_abi_host &, const weft_abi_config &)>
constexpr weft_abi_model model_of()
{
	struct Call {
		static Device &on(void *model)
		{
			return *static_cast<Device *>(model);
		}
		static int create(const weft_abi_host *host, const weft_abi_config *config, void **model, char *message,
				  std::size_t room)
		{
			try {
				*model = make(*host, *config).release();
				return 0;
			} catch (const std::bad_alloc &) {
				if (message && room)
					std::snprintf(message, room, "not enough memory for the device's tables");
				return -ENOMEM;
			} catch (const std::exception &error) {
				if (message && room)
					std::snprintf(message, room, "%s", error.what());
				return -EINVAL;
			}
		}
	};
	weft_abi_model table{};
	table.size = sizeof table;
	table.version = WEFT_ABI_VERSION;
	table.create = Call::create;
	table.destroy = [](void *model) { std::unique_ptr<Device>(static_cast<Device *>(model)); };
	table.info = [](void *model, weft_abi_info *info) { Call::on(model).info(*info); };
	table.attach_ram = [](void *model, std::uint32_t bar, void *base, std::uint64_t bytes) {
		return Call::on(model).attach_ram(bar, base, bytes);
	};
	table.region_read = [](void *model, std::uint32_t bar, std::uint64_t offset, std::uint32_t bytes) {
		return Call::on(model).region_read(bar, offset, bytes);
	};
	table.region_write = [](void *model, std::uint32_t bar, std::uint64_t offset, std::uint64_t value,
				std::uint32_t bytes) { Call::on(model).region_write(bar, offset, value, bytes); };
	table.dma_map = [](void *, std::uint64_t, std::uint64_t, void *) {};
	table.dma_unmap = [](void *, std::uint64_t, std::uint64_t) {};
	table.reset = [](void *model, weft_abi_reset kind) { return Call::on(model).reset(kind); };
	table.quiesce = [](void *model) { return Call::on(model).quiesce(); };
	table.resume = [](void *model) { return Call::on(model).resume(); };
	table.link_receive = [](void *model, std::uint32_t link, std::uint32_t cls, const void *frame,
				std::size_t bytes) {
		return Call::on(model).link_receive(link, cls, {static_cast<const std::byte *>(frame), bytes});
	};
	table.link_ready = [](void *model, std::uint32_t link, std::uint32_t cls) {
		Call::on(model).link_ready(link, cls);
	};
	table.link_pause = [](void *, std::uint32_t, std::uint32_t, int) {};
	table.link_state = [](void *model, std::uint32_t link, int up) { Call::on(model).link_state(link, up != 0); };
	table.step = [](void *model, std::uint32_t budget) { return Call::on(model).step(budget); };
	if constexpr (requires(Device &device, std::span<const std::uint8_t, 6> mac) {
			      device.link_station(0u, mac, true);
		      }) {
		table.link_station = [](void *model, std::uint32_t link, const std::uint8_t *mac, int up) {
			Call::on(model).link_station(link, std::span<const std::uint8_t, 6>(mac, 6), up != 0);
		};
	}
	if constexpr (requires(Device &device) { device.fault("", std::span<const std::uint64_t>()); }) {
		table.fault = [](void *model, const char *name, const std::uint64_t *value, std::uint32_t values) {
			return Call::on(model).fault(name, {value, value != nullptr ? values : 0});
		};
	}
	return table;
}

} // namespace weft::abi
