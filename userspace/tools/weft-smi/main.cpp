// SPDX-License-Identifier: MIT
// weft-smi: what devices there are and how they are.
#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdlib>
#include <exception>
#include <functional>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "devices.hpp"
#include "output.hpp"
#include "table.hpp"
#include "views.hpp"

namespace {

using weft::smi::Device;
using weft::smi::Devices;
using weft::smi::Row;
using View = std::function<std::vector<Row>(const Device&)>;

struct Arguments {
  std::string device;
  std::string json;  // file, "-" or ""
  bool zeros = false;
  unsigned watch = 0;   // seconds, 0: once
  std::string command;  // line
};

std::string command_line(int argc, char** argv) {
  std::string line = "weft-smi";
  for (int i = 1; i < argc; ++i) line += std::string(" ") + argv[i];
  return line;
}

// False when a device could not be looked at: its row has the reason as "error", and the others are shown all the same.
bool show(const Devices& devices, const View& view, const Arguments& arguments, weft::tools::Output& out) {
  std::vector<Row> rows, failed;
  for (const auto& [name, reason] : devices.failed) failed.push_back({{"device", name}, {"error", reason}});
  for (const Device& device : devices.opened) {
    try {
      for (Row& row : view(device)) rows.push_back(std::move(row));
    } catch (const weft::smi::Error& error) {
      failed.push_back({{"device", device.name()}, {"error", error.what()}});
    }
  }
  if (out) {
    rows.insert(rows.end(), failed.begin(), failed.end());
    const char* accel = std::getenv("WEFT_ACCEL");
    const nlohmann::ordered_json document = {{"schema", 1},
                                             {"command", arguments.command},
                                             {"accel", accel != nullptr && *accel != '\0' ? accel : "none"},
                                             {"rows", rows}};
    // When watching, a document a line.
    out.write(document.dump(arguments.watch != 0 ? -1 : 2) + '\n');
    return failed.empty();
  }
  weft::smi::print_table(std::cout, rows);
  for (const Row& row : failed)
    std::cout << row["device"].get<std::string>() << ": FAILED: " << row["error"].get<std::string>() << '\n';
  if (rows.empty() && failed.empty()) std::cout << "nothing to show\n";
  std::cout.flush();
  return failed.empty();
}

}  // namespace

int main(int argc, char** argv) {
  Arguments arguments;
  arguments.command = command_line(argc, argv);
  CLI::App app{"Weft devices: what there is and how it is"};
  app.fallthrough();
  app.require_subcommand(0, 1);
  app.add_option("-d,--device", arguments.device,
                 "kernel[:N], sim[:N], null or PATH.so[:ARGUMENT]; a backend alone means all its devices "
                 "(default: $WEFT_DEVICE, else kernel)");
  app.add_option("-J,--json", arguments.json,
                 "write JSON to this file, - for standard output: {schema, command, accel, rows}");
  app.set_version_flag("--version", weft::tools::version("weft-smi"));
  app.add_option("-w,--watch", arguments.watch, "Again every N seconds, until interrupted")
      ->check(CLI::Range(1, 86400));

  View view = weft::smi::list;
  const auto offer = [&](const char* name, const char* text, View shown) {
    CLI::App* command = app.add_subcommand(name, text);
    command->callback([&view, shown = std::move(shown)] { view = shown; });
    return command;
  };
  offer("list", "Devices (default)", weft::smi::list);
  offer("hbm", "Device memory", weft::smi::hbm);
  offer("ports", "RoCE ports: state and addresses", weft::smi::ports);
  offer("firmware", "What runs on the device", weft::smi::firmware);
  offer("log", "The firmware's log", weft::smi::log);
  offer("sensors", "Temperature, power, voltage, clock", weft::smi::sensors);
  offer("counters", "Accounting of the device and its ports", [&](const Device& device) {
    return weft::smi::counters(device, arguments.zeros || !arguments.json.empty());
  })->add_flag("--zeros", arguments.zeros, "Also counters that are 0 (JSON always has all)");
  CLI11_PARSE(app, argc, argv);

  if (arguments.device.empty()) {
    const char* wanted = std::getenv("WEFT_DEVICE");
    arguments.device = wanted != nullptr && *wanted != '\0' ? wanted : "kernel";
  }
  try {
    weft::tools::Output out(arguments.json);
    const Devices devices = weft::smi::open_devices(arguments.device);
    bool whole = show(devices, view, arguments, out);
    while (arguments.watch != 0) {
      std::this_thread::sleep_for(std::chrono::seconds(arguments.watch));
      if (!out) std::cout << '\n';
      whole = show(devices, view, arguments, out);
    }
    return whole ? 0 : 1;
  } catch (const std::exception& error) {
    std::cerr << "weft-smi: " << error.what() << '\n';
    return 1;
  }
}
