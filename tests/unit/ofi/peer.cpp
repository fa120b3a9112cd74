// SPDX-License-Identifier: MIT
// peer LIBRARY: opens memory to others over tcp, writes its card to standard output, and serves for a minute or until
// it is killed.
#include "peer.hpp"

#include <unistd.h>

#include <cstdio>
#include <vector>

#include "weft/ofi_load.h"

int main(int count, char** argument) {
  using namespace weft::ofi::test;
  char message[512] = "usage: peer LIBRARY";
  const weft_ofi_api* api = count == 2 ? weft_ofi_load(argument[1], message, sizeof(message)) : nullptr;
  if (api == nullptr) {
    std::fprintf(stderr, "%s\n", message);
    return 1;
  }
  weft_ofi_open_args args{};
  args.size = sizeof(args);
  args.provider = "tcp";
  args.address = "127.0.0.1";
  weft_ofi* ofi = nullptr;
  weft_ofi_mr* mr = nullptr;
  std::vector<unsigned char> memory(kPeerBytes);
  Card card{};
  size_t bytes = sizeof(card.address);
  if (api->open(&args, &ofi) != 0 || api->register_host(ofi, memory.data(), memory.size(), 0, &mr) != 0 ||
      api->remote(mr, &card.memory, &card.key) != 0 || api->address(ofi, card.address, &bytes) != 0) {
    std::fprintf(stderr, "%s\n", api->error());
    return 1;
  }
  card.address_bytes = static_cast<std::uint32_t>(bytes);
  if (write(STDOUT_FILENO, &card, sizeof(card)) != static_cast<ssize_t>(sizeof(card))) return 1;
  close(STDOUT_FILENO);
  weft_ofi_completion done;
  for (int i = 0; i < 600; ++i)
    if (api->wait(ofi, &done, 1, 100) < 0) return 1;
  api->close(ofi);
}
