// SPDX-License-Identifier: MIT
// Rows for people: columns as wide as what is in them.
#pragma once

#include <nlohmann/json.hpp>
#include <ostream>
#include <vector>

namespace weft::smi {

using Row = nlohmann::ordered_json;  // an object; all rows of a table have the same keys

// Keys are the headings. Values of keys that end in "_bytes", "_mc", "_mw", "_mv" or "_ms" are shown in a unit that
// suits people; null is shown as "-".
void print_table(std::ostream& out, const std::vector<Row>& rows);

}  // namespace weft::smi
