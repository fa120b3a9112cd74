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

// What a device does that has nothing of its own to say: no RAM, no links, no registers, no work. A device derives from
// it and adds reset(), info() and what it has; see model_of().
struct Model {
	int attach_ram(std::uint32_t /*bar*/, void * /*base*/, std::uint64_t /*bytes*/)
	{
		return -EINVAL;
	}
	std::uint64_t region_read(std::uint32_t /*bar*/, std::uint64_t /*offset*/, std::uint32_t /*bytes*/)
	{
		return 0;
	}
	void region_write(std::uint32_t /*bar*/, std::uint64_t /*offset*/, std::uint64_t /*value*/,
			  std::uint32_t /*bytes*/)
	{
	}
	int quiesce()
	{
		return 0;
	}
	int resume()
	{
		return 0;
	}
	int link_receive(std::uint32_t /*link*/, std::uint32_t /*cls*/, std::span<const std::byte> /*frame*/)
	{
		return -EOPNOTSUPP; // dropped and counted by the host, which gives the credit back
	}
	void link_ready(std::uint32_t /*link*/, std::uint32_t /*cls*/)
	{
	}
	void link_state(std::uint32_t /*link*/, bool /*up*/)
	{
	}
	weft_abi_step step(std::uint32_t /*budget*/)
	{
		return {};
	}
};

// A device and what happens when it throws: the event "model_exception", and from then on it does nothing (registers read
// as all ones, as of a device that left the bus) until a reset succeeds.
template <class Device> struct Hosted {
	std::unique_ptr<Device> device;
	weft_abi_host host;
	bool failed = false;

	template <class Result, class Body> Result call(Result otherwise, Body body) noexcept
	{
		if (failed)
			return otherwise;
		try {
			return body(*device);
		} catch (...) {
			failed = true;
		}
		host.log(host.opaque, WEFT_ABI_LOG_ERROR, "model_exception", nullptr, 0);
		return otherwise;
	}
};

// The table for `Device`, which has the members of Model, reset(kind) and info(info), with the table's arguments, and may
// have fault(name, values) and link_station(link, mac, up). `make` returns it as a std::unique_ptr; what it throws becomes
// the message of create(): -ENOMEM for std::bad_alloc, else -EINVAL.
template <class Device, std::unique_ptr<Device> (*make)(const weft_abi_host &, const weft_abi_config &)>
constexpr weft_abi_model model_of()
{
	struct Call {
		static Hosted<Device> &on(void *model)
		{
			return *static_cast<Hosted<Device> *>(model);
		}
		static int create(const weft_abi_host *host, const weft_abi_config *config, void **model, char *message,
				  std::size_t room)
		{
			int error = -EINVAL;
			try {
				*model = std::make_unique<Hosted<Device>>(Hosted<Device>{make(*host, *config), *host})
						 .release();
				return 0;
			} catch (const std::bad_alloc &) {
				error = -ENOMEM;
				if (message && room)
					std::snprintf(message, room, "not enough memory for the device's tables");
			} catch (const std::exception &exception) {
				if (message && room)
					std::snprintf(message, room, "%s", exception.what());
			} catch (...) {
				if (message && room)
					std::snprintf(message, room, "the model threw no std::exception");
			}
			return error;
		}
	};
	weft_abi_model table{};
	table.size = sizeof table;
	table.version = WEFT_ABI_VERSION;
	table.create = Call::create;
	table.destroy = [](void *model) { std::unique_ptr<Hosted<Device>>(&Call::on(model)); };
	table.info = [](void *model, weft_abi_info *info) { Call::on(model).device->info(*info); };
	table.attach_ram = [](void *model, std::uint32_t bar, void *base, std::uint64_t bytes) {
		return Call::on(model).call(-EIO, [&](Device &d) { return d.attach_ram(bar, base, bytes); });
	};
	table.region_read = [](void *model, std::uint32_t bar, std::uint64_t offset, std::uint32_t bytes) {
		return Call::on(model).call(~std::uint64_t{0},
					    [&](Device &d) { return d.region_read(bar, offset, bytes); });
	};
	table.region_write = [](void *model, std::uint32_t bar, std::uint64_t offset, std::uint64_t value,
				std::uint32_t bytes) {
		Call::on(model).call(0, [&](Device &d) { return d.region_write(bar, offset, value, bytes), 0; });
	};
	table.reset = [](void *model, weft_abi_reset kind) {
		Call::on(model).failed = false;
		return Call::on(model).call(-EIO, [&](Device &d) { return d.reset(kind); });
	};
	table.quiesce = [](void *model) { return Call::on(model).call(0, [](Device &d) { return d.quiesce(); }); };
	table.resume = [](void *model) { return Call::on(model).call(0, [](Device &d) { return d.resume(); }); };
	table.link_receive = [](void *model, std::uint32_t link, std::uint32_t cls, const void *frame,
				std::size_t bytes) {
		return Call::on(model).call(-EIO, [&](Device &d) {
			return d.link_receive(link, cls, {static_cast<const std::byte *>(frame), bytes});
		});
	};
	table.link_ready = [](void *model, std::uint32_t link, std::uint32_t cls) {
		Call::on(model).call(0, [&](Device &d) { return d.link_ready(link, cls), 0; });
	};
	table.link_state = [](void *model, std::uint32_t link, int up) {
		Call::on(model).call(0, [&](Device &d) { return d.link_state(link, up != 0), 0; });
	};
	table.step = [](void *model, std::uint32_t budget) {
		return Call::on(model).call(weft_abi_step{}, [&](Device &d) { return d.step(budget); });
	};
	if constexpr (requires(Device &device, std::span<const std::uint8_t, 6> mac) {
			      device.link_station(0u, mac, true);
		      }) {
		table.link_station = [](void *model, std::uint32_t link, const std::uint8_t *mac, int up) {
			Call::on(model).call(0, [&](Device &d) {
				return d.link_station(link, std::span<const std::uint8_t, 6>(mac, 6), up != 0), 0;
			});
		};
	}
	if constexpr (requires(Device &device) { device.fault("", std::span<const std::uint64_t>()); }) {
		table.fault = [](void *model, const char *name, const std::uint64_t *value, std::uint32_t values) {
			return Call::on(model).call(-EIO, [&](Device &d) {
				return d.fault(name, std::span(value, value != nullptr ? values : 0));
			});
		};
	}
	return table;
}

} // namespace weft::abi
