// SPDX-License-Identifier: MIT
// Which path is taken, and what an error says when none can be.
#include "path.hpp"

#include <gtest/gtest.h>

#include "cluster.hpp"
#include "error.hpp"

namespace weft::ccl {
namespace {

using test::Cluster;
using test::Environment;

TEST(Path, AskedForAndNotPossibleIsAnError) {
  Cluster c({.devices = 2, .connect = false});
  {
    const Environment path("WCCL_PATH", "peer");
    EXPECT_EQ(c.connect(), wcclInvalidUsage);
    const std::string text = wcclGetLastError(nullptr);
    EXPECT_NE(text.find("path peer was asked for, but peer-direct needs a host NIC that can register HBM through "
                        "DMA-BUF: "),
              std::string::npos)
        << text;
  }
  {
    const Environment path("WCCL_PATH", "staged"), over("WCCL_STAGED_OVER", "efa");
    EXPECT_EQ(c.connect(), wcclInvalidUsage);
    const std::string text = wcclGetLastError(nullptr);
    EXPECT_NE(text.find("path staged was asked for, but over efa: "), std::string::npos) << text;
  }
  {
    const Environment path("WCCL_PATH", "fastest");
    EXPECT_EQ(c.connect(), wcclInvalidArgument);
  }
  {
    const Environment over("WCCL_STAGED_OVER", "pigeon");
    EXPECT_EQ(c.connect(), wcclInvalidArgument);
  }
  {
    const Environment path("WCCL_PATH", "onchip");
    EXPECT_EQ(c.connect(), wcclSuccess) << wcclGetLastError(nullptr);
  }
}

TEST(Path, NoPortIsUp) {
  Cluster c({.devices = 2, .connect = false});
  ASSERT_EQ(weft_sim_link(1, 0, 0), 0);
  weft_sim_run(1'000'000);
  const Environment over("WCCL_STAGED_OVER", "efa");
  EXPECT_EQ(c.connect(), wcclInvalidUsage);
  const std::string text = wcclGetLastError(nullptr);
  EXPECT_NE(text.find("not onchip: on-chip needs a port that is up: none is (rank 1"), std::string::npos) << text;
  EXPECT_NE(text.find("not peer: peer-direct needs"), std::string::npos) << text;
  EXPECT_NE(text.find("not staged over efa: "), std::string::npos) << text;
}

// Without the wrapper (or libfabric) everything else works, and the error says what is missing.
TEST(Path, NoLibfabric) {
  Cluster c({.devices = 2, .connect = false});
  const Environment wrapper("WEFT_OFI", "/nowhere/libweft_ofi.so");
  {
    const Environment path("WCCL_PATH", "staged");
    EXPECT_EQ(c.connect(), wcclInvalidUsage);
    const std::string text = wcclGetLastError(nullptr);
    EXPECT_NE(text.find("the OFI wrapper cannot be loaded: /nowhere/libweft_ofi.so"), std::string::npos) << text;
  }
  EXPECT_EQ(c.connect(), wcclSuccess) << wcclGetLastError(nullptr);
}

// The decision as a table: which ways are open and what is asked for give a path or an error.
TEST(Path, Choice) {
  // What rank 1 of three finds in the way of on-chip, peer, staged over efa, staged over tcp.
  const auto choose = [](wcclPath_t asked, const std::string& over, bool ports, bool peer, bool nic, bool tcp) {
    PathSearch search(std::vector<Wish>(3, Wish{asked, over, ""}));
    for (;;) {
      const Way& way = search.way();
      const bool open = way.path == wcclPathOnchip            ? ports
                        : way.path == wcclPathPeer            ? peer
                        : std::string(way.transport) == "tcp" ? tcp
                                                              : nic;
      const std::string obstacles[] = {"", open ? "" : "because", ""};
      if (search.answers(obstacles)) return search.choice();
    }
  };
  const auto error = [&](auto... arguments) -> std::string {
    try {
      choose(arguments...);
    } catch (const Failure& failure) {
      return failure.what();
    }
    return "none";
  };
  const std::string any;
  for (const bool nic : {false, true}) {
    EXPECT_EQ(choose(wcclPathAuto, any, true, nic, nic, true).path, wcclPathOnchip);
    EXPECT_EQ(choose(wcclPathOnchip, any, true, nic, nic, true).path, wcclPathOnchip);
    EXPECT_EQ(error(wcclPathOnchip, any, false, nic, nic, true), "path onchip was asked for, but because (rank 1)");
  }
  EXPECT_EQ(choose(wcclPathAuto, any, false, true, true, true).path, wcclPathPeer);
  EXPECT_EQ(choose(wcclPathAuto, any, false, true, true, true).reason, "not onchip: because (rank 1)");
  EXPECT_EQ(choose(wcclPathAuto, any, false, false, true, true).transport, "efa-direct");
  EXPECT_EQ(choose(wcclPathAuto, any, false, false, false, true).transport, "tcp");
  EXPECT_EQ(choose(wcclPathAuto, "tcp", false, false, true, true).transport, "tcp");
  EXPECT_EQ(choose(wcclPathStaged, any, true, true, false, true).reason, "asked for; not over efa: because (rank 1)");
  EXPECT_EQ(error(wcclPathAuto, any, false, false, false, false),
            "no path between the ranks: not onchip: because (rank 1); not peer: because (rank 1); not staged over efa: "
            "because (rank 1); not staged over tcp: because (rank 1)");
  EXPECT_EQ(error(wcclPathPeer, any, true, false, true, true), "path peer was asked for, but because (rank 1)");
  EXPECT_THROW(PathSearch({Wish{wcclPathAuto, "", ""}, Wish{wcclPathStaged, "", ""}}), Failure);
}

}  // namespace
}  // namespace weft::ccl
