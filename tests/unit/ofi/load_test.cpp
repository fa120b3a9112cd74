// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "endpoint.hpp"

namespace weft::ofi::test {
namespace {

TEST(OfiLoad, SaysWhatIsMissing) {
  char message[512] = "";
  EXPECT_EQ(weft_ofi_load("libweft_ofi-not-there.so", message, sizeof(message)), nullptr);
  EXPECT_NE(std::string(message).find("libweft_ofi-not-there.so"), std::string::npos) << message;
  // Something else.
  EXPECT_EQ(weft_ofi_load("libc.so.6", message, sizeof(message)), nullptr);
  EXPECT_NE(std::string(message).find("does not speak version 1"), std::string::npos) << message;
}

TEST(OfiLoad, SpeaksItsVersionOnly) {
  ASSERT_EQ(api().size, sizeof(weft_ofi_api));
  void* library = dlopen(WEFT_OFI_FILE, RTLD_NOW | RTLD_NOLOAD);
  ASSERT_NE(library, nullptr);
  auto* entry = reinterpret_cast<weft_ofi_entry_fn*>(dlsym(library, WEFT_OFI_ENTRY));
  ASSERT_NE(entry, nullptr);
  EXPECT_EQ(entry(0), nullptr);
  EXPECT_EQ(entry(WEFT_OFI_VERSION + 1), nullptr);
  // Unversioned, so that it answers for IBVERBS_1.1 too.
  EXPECT_NE(dlsym(library, "ibv_get_device_list"), nullptr);
  dlclose(library);
}

// Which library answers when libfabric asks for the verbs devices, as the dynamic linker says it. It decides whether
// foreign devices can be hidden.
std::string who_answers(const char* program, const char* preload) {
  char folder[] = "/tmp/weft-ofi-XXXXXX";
  EXPECT_NE(mkdtemp(folder), nullptr);
  const std::string command = std::string("LD_DEBUG=bindings LD_DEBUG_OUTPUT=") + folder + "/log " +
                              (preload != nullptr ? std::string("LD_PRELOAD=") + preload + " " : std::string()) +
                              program + " " WEFT_OFI_FILE " >/dev/null";
  EXPECT_EQ(std::system(command.c_str()), 0) << command;
  std::string answer = "nobody";
  for (const auto& log : std::filesystem::directory_iterator(folder)) {
    std::ifstream lines(log.path());
    for (std::string line; std::getline(lines, line);) {
      const std::size_t to = line.find(" to ");
      if (line.find("`ibv_get_device_list'") == std::string::npos || to == std::string::npos ||
          line.find("libfabric.so") > to)
        continue;
      const std::string target = line.substr(to + 4, line.find(' ', to + 4) - to - 4);
      answer = std::filesystem::path(target).filename().string();
      answer = answer.substr(0, answer.find(".so"));
    }
  }
  std::filesystem::remove_all(folder);
  return answer;
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define WEFT_NOT_UNDER_SANITIZERS() GTEST_SKIP() << "sanitizers interpose libraries themselves"
#else
#define WEFT_NOT_UNDER_SANITIZERS()
#endif

TEST(OfiFilter, AnswersForLibibverbs) {
  WEFT_NOT_UNDER_SANITIZERS();
  EXPECT_EQ(who_answers(WEFT_OFI_PLAIN_PROGRAM, nullptr), "libweft_ofi");
}

TEST(OfiFilter, AlsoInAProgramThatLinksLibibverbs) {
  WEFT_NOT_UNDER_SANITIZERS();
  EXPECT_EQ(who_answers(WEFT_OFI_VERBS_PROGRAM, nullptr), "libweft_ofi");
}

TEST(OfiFilter, InAProgramThatLinksLibfabricOnlyPreloaded) {
  WEFT_NOT_UNDER_SANITIZERS();
  EXPECT_EQ(who_answers(WEFT_OFI_FABRIC_PROGRAM, nullptr), "libibverbs");
  EXPECT_EQ(who_answers(WEFT_OFI_FABRIC_PROGRAM, WEFT_OFI_FILE), "libweft_ofi");
}

TEST(OfiOpen, UnknownProvider) {
  weft_ofi_open_args args = tcp_args();
  args.provider = "carrier-pigeon";
  weft_ofi* ofi = nullptr;
  EXPECT_EQ(api().open(&args, &ofi), -EINVAL);
  EXPECT_STREQ(api().error(), "unknown provider carrier-pigeon: it is efa-direct, efa or tcp");
  args.provider = nullptr;
  EXPECT_EQ(api().open(&args, &ofi), -EINVAL);
  EXPECT_EQ(api().list("carrier-pigeon", nullptr, 0), -EINVAL);
}

TEST(OfiOpen, UnknownDomainOrAddress) {
  weft_ofi_open_args args = tcp_args();
  args.domain = "no-such-interface";
  args.address = nullptr;
  weft_ofi* ofi = nullptr;
  EXPECT_EQ(api().open(&args, &ofi), -ENODEV);
  EXPECT_NE(std::string(api().error()).find("no-such-interface"), std::string::npos) << api().error();
  args.domain = nullptr;
  args.address = "192.0.2.77";  // RFC 5737: nobody's
  const int error = api().open(&args, &ofi);
  EXPECT_TRUE(error == -ENODEV || error == -EADDRNOTAVAIL) << error;
  EXPECT_EQ(ofi, nullptr);
}

TEST(OfiOpen, NoEfaDeviceIsAReason) {
  std::error_code error;
  for (const auto& device : std::filesystem::directory_iterator("/sys/class/infiniband", error))
    if (std::filesystem::read_symlink(device.path() / "device/driver", error).filename() == "efa")
      GTEST_SKIP() << "there is an EFA device here";
  for (const char* provider : {"efa-direct", "efa"}) {
    weft_ofi_open_args args = tcp_args();
    args.address = nullptr;
    args.provider = provider;
    weft_ofi* ofi = nullptr;
    EXPECT_EQ(api().open(&args, &ofi), -ENODEV);
    EXPECT_NE(std::string(api().error()).find("no RDMA device is driven by efa"), std::string::npos) << api().error();
  }
}

TEST(OfiList, TcpHasLoopback) {
  std::vector<weft_ofi_info> infos(64);
  for (weft_ofi_info& info : infos) info.size = sizeof(info);
  const int count = api().list("tcp", infos.data(), infos.size());
  ASSERT_GT(count, 0) << api().error();
  bool loopback = false;
  for (int i = 0; i < std::min(count, 64); ++i) loopback |= std::string(infos[i].domain) == "lo";
  EXPECT_TRUE(loopback);
  EXPECT_EQ(api().list("tcp", nullptr, 0), count);
}

}  // namespace
}  // namespace weft::ofi::test
