// SPDX-License-Identifier: MIT
// weft-fabric: the Ethernet switch between emulated accelerators, host NICs and QEMU's network devices.
#include <CLI/CLI.hpp>
#include <cstdlib>
#include <exception>
#include <iostream>
#include <string>

#include "server.hpp"

int main(int argc, char** argv) {
  CLI::App app{
      "An Ethernet switch for emulated accelerator ports and QEMU netdevs, over UNIX sockets.\n"
      "Prints `ready` when it listens and runs until SIGINT or SIGTERM."};
  std::string weft, net, control, capture;
  weft::fabric::ImpairmentPlan plan;
  app.add_option("--weft", weft, "socket for accelerator ports and host NICs (QEMU: -device weft,fabric=PATH)");
  app.add_option("--net", net, "socket for -netdev stream,server=off,addr.type=unix,addr.path=PATH");
  app.add_option("--control", control, "socket that takes commands: stats, capture, plan, link");
  app.add_option("--capture", capture, "write all frames to this pcapng file, an interface a port");
  const CLI::Range probability(0.0, 1.0);
  app.add_option("--loss", plan.loss, "probability that a frame of an accelerator port is lost")->check(probability);
  app.add_option("--duplicate", plan.duplicate, "probability that it comes twice")->check(probability);
  app.add_option("--corrupt", plan.corrupt, "probability that a byte of it changes")->check(probability);
  app.add_option("--reorder", plan.reorder, "probability that the next one passes it")->check(probability);
  app.add_option("--seed", plan.seed, "of the four above: the same seed gives each port's frames the same fates");
  CLI11_PARSE(app, argc, argv);
  if (weft.empty() && net.empty()) {
    std::cerr << "weft-fabric: nothing to serve: give --weft or --net (see --help)\n";
    return EXIT_FAILURE;
  }
  try {
    weft::fabric::Server server(plan);
    if (!capture.empty()) server.start_capture(capture);
    if (!weft.empty()) server.listen_weft(weft);
    if (!net.empty()) server.listen_net(net);
    if (!control.empty()) server.listen_control(control);
    std::cout << "ready" << std::endl;
    server.run();
  } catch (const std::exception& error) {
    std::cerr << "weft-fabric: " << error.what() << "\n";
    return EXIT_FAILURE;
  }
  return EXIT_SUCCESS;
}
