// SPDX-License-Identifier: MIT
// weft-chart: JSON to SVG.
#include <CLI/CLI.hpp>
#include <exception>
#include <fstream>
#include <iostream>
#include <iterator>
#include <stdexcept>
#include <string>

#include "output.hpp"
#include "weft/chart/chart.hpp"

namespace {

std::string read_all(const std::string& name) {
  if (name == "-") return {std::istreambuf_iterator<char>(std::cin), {}};
  std::ifstream file(name, std::ios::binary);
  if (!file) throw std::runtime_error("cannot be read");
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{
      "Draws a line chart as SVG.\n"
      "Input: {\"title\", \"subtitle\", \"x\": {\"label\", \"scale\"}, \"y\": {\"label\", \"scale\"},\n"
      "        \"series\": [{\"name\", \"points\": [[x, y], ...]}],\n"
      "        \"bands\": [{\"name\", \"x\": [from, to], \"y\": [from, to], \"points\": [[x, low, high], ...], "
      "\"series\"}],\n"
      "        \"labels\": [{\"x\", \"y\", \"text\"}]}; scale: log2 (bytes; default of x), log, linear (default of y)"};
  std::string input = "-", output = "-";
  app.set_version_flag("--version", weft::tools::version("weft-chart"));
  app.add_option("INPUT", input, "JSON file, - for standard input")->capture_default_str();
  app.add_option("OUTPUT", output, "SVG file, - for standard output")->capture_default_str();
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  try {
    weft::tools::Output(output).write(weft::chart::draw(weft::chart::read_json(read_all(input))));
  } catch (const std::exception& error) {
    std::cerr << "weft-chart: " << (input == "-" ? "standard input" : input) << ": " << error.what() << '\n';
    return 1;
  }
  return 0;
}
