// SPDX-License-Identifier: MIT
// CLI11's code, compiled once for all tools: with CLI11_COMPILE its headers hold declarations and templates alone.
// Before version 2.3 (Debian 12 has 2.1) all is inline, CLI11_COMPILE means nothing, and this file is empty.
#include <CLI/CLI.hpp>
#if __has_include(<CLI/impl/App_inl.hpp>)
#include <CLI/impl/App_inl.hpp>
#include <CLI/impl/Config_inl.hpp>
#include <CLI/impl/Formatter_inl.hpp>
#include <CLI/impl/Option_inl.hpp>
#include <CLI/impl/Split_inl.hpp>
#include <CLI/impl/StringTools_inl.hpp>
#include <CLI/impl/Validators_inl.hpp>
#endif
#if __has_include(<CLI/impl/Argv_inl.hpp>)
#include <CLI/impl/Argv_inl.hpp>
#include <CLI/impl/Encoding_inl.hpp>
#endif
