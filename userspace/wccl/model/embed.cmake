# SPDX-License-Identifier: MIT
# Writes OUT: the profiles of the list IN as C++ text, so that tools find them wherever they run.
set(text "// Made from model/profiles by model/embed.cmake.\n#pragma once\n\n#include <string_view>\n#include <utility>\n\n")
string(APPEND text "namespace weft::ccl::model {\n\ninline constexpr std::pair<std::string_view, std::string_view> kBuiltinProfiles[] = {\n")
foreach(file ${IN})
  get_filename_component(name ${file} NAME_WE)
  file(READ ${file} json)
  string(APPEND text "    {\"${name}\", R\"json(${json})json\"},\n")
endforeach()
string(APPEND text "};\n\n}  // namespace weft::ccl::model\n")
file(WRITE ${OUT} "${text}")
