// SPDX-License-Identifier: MIT
// Ranks from a launcher's variables: understood, or refused; never taken for one rank alone.
#include "launch.hpp"

#include <gmock/gmock.h>

#include <cstdlib>
#include <map>
#include <stdexcept>
#include <string>

namespace {

using ::testing::HasSubstr;
using weft::tools::find_launch;
using weft::tools::Launch;

class Launcher : public ::testing::Test {
 protected:
  using Variables = std::map<std::string, std::string>;
  // Nothing of the launcher that runs the tests.
  void SetUp() override { clearenv(); }
  Launch with(const Variables& variables) {
    clearenv();
    for (const auto& [name, value] : variables) setenv(name.c_str(), value.c_str(), 1);
    return find_launch();
  }
  std::string refused(const Variables& variables) {
    try {
      const Launch launch = with(variables);
      return "taken for rank " + std::to_string(launch.rank) + " of " + std::to_string(launch.ranks);
    } catch (const std::runtime_error& error) {
      return error.what();
    }
  }
};

TEST_F(Launcher, NoneIsOneRank) {
  const Launch launch = with({});
  EXPECT_EQ(launch.ranks, 1u);
  EXPECT_EQ(launch.launcher, "none");
}

TEST_F(Launcher, EachIsUnderstood) {
  const struct {
    const char* who;
    Variables variables;
    std::uint32_t local;
    std::string host;
  } kCases[] = {
      {"weft-vm", {{"WEFT_RANK", "3"}, {"WEFT_SIZE", "4"}, {"WEFT_ADDRS", "10.0.0.1,10.0.0.2"}}, 0, "10.0.0.1"},
      {"Open MPI",
       {{"OMPI_COMM_WORLD_RANK", "3"},
        {"OMPI_COMM_WORLD_SIZE", "4"},
        {"OMPI_COMM_WORLD_LOCAL_RANK", "3"},
        {"OMPI_COMM_WORLD_LOCAL_SIZE", "4"},
        {"PMIX_RANK", "3"}},
       3,
       "127.0.0.1"},
      {"torchrun", {{"RANK", "3"}, {"WORLD_SIZE", "4"}, {"LOCAL_RANK", "1"}, {"MASTER_ADDR", "node7"}}, 1, "node7"},
      {"PMI",
       {{"PMI_RANK", "3"},
        {"PMI_SIZE", "4"},
        {"MPI_LOCALRANKID", "3"},
        {"MPI_LOCALNRANKS", "4"},
        {"SLURM_PROCID", "0"},
        {"SLURM_NTASKS", "1"}},
       3,
       "127.0.0.1"},
      {"MVAPICH",
       {{"MV2_COMM_WORLD_RANK", "3"},
        {"MV2_COMM_WORLD_SIZE", "4"},
        {"MV2_COMM_WORLD_LOCAL_RANK", "3"},
        {"MV2_COMM_WORLD_LOCAL_SIZE", "4"}},
       3,
       "127.0.0.1"},
      {"Slurm",
       {{"SLURM_PROCID", "3"},
        {"SLURM_STEP_NUM_TASKS", "4"},
        {"SLURM_LOCALID", "1"},
        {"SLURM_STEP_NODELIST", "n[03-05]"}},
       1,
       "n03"},
  };
  for (const auto& one : kCases) {
    const Launch launch = with(one.variables);
    EXPECT_EQ(launch.launcher, one.who);
    EXPECT_EQ(launch.rank, 3u) << one.who;
    EXPECT_EQ(launch.ranks, 4u) << one.who;
    EXPECT_EQ(launch.local_rank, one.local) << one.who;
    EXPECT_EQ(launch.root.substr(0, launch.root.rfind(':')), one.host) << one.who;
  }
}

// They give no address of rank 0.
TEST_F(Launcher, OthersNeedTheMeetingPoint) {
  const Variables kCases[] = {
      {{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}},
      {{"MV2_COMM_WORLD_RANK", "1"}, {"MV2_COMM_WORLD_SIZE", "2"}, {"MV2_COMM_WORLD_LOCAL_SIZE", "1"}},
      {{"PALS_RANKID", "1"}, {"PALS_SIZE", "2"}},
      {{"FLUX_TASK_RANK", "1"}, {"FLUX_JOB_SIZE", "2"}},
      {{"OMPI_COMM_WORLD_RANK", "1"}, {"OMPI_COMM_WORLD_SIZE", "2"}, {"OMPI_COMM_WORLD_LOCAL_SIZE", "1"}},
  };
  for (Variables variables : kCases) {
    EXPECT_THAT(refused(variables), HasSubstr("set WCCL_COMM_ID=address:port"));
    variables["WCCL_COMM_ID"] = "10.0.0.1:5000";
    const Launch launch = with(variables);
    EXPECT_EQ(launch.rank, 1u);
    EXPECT_EQ(launch.ranks, 2u);
    EXPECT_EQ(launch.root, "") << "WCCL_COMM_ID says it";
  }
}

TEST_F(Launcher, ARankOfUnknownManyIsRefused) {
  for (const char* name : {"RANK", "PMI_RANK", "PMIX_RANK", "PALS_RANKID", "FLUX_TASK_RANK", "MV2_COMM_WORLD_RANK",
                           "OMPI_COMM_WORLD_RANK", "WEFT_RANK"}) {
    EXPECT_THAT(refused({{name, "0"}}), HasSubstr(std::string(name) + "=0 is set, but"));
    EXPECT_THAT(refused({{name, "1"}}), HasSubstr(std::string(name) + "=1 is set, but"));
  }
  EXPECT_THAT(refused({{"SLURM_PROCID", "1"}}), HasSubstr("SLURM_PROCID=1 is set, but"));
  EXPECT_EQ(with({{"SLURM_PROCID", "0"}}).ranks, 1u) << "a batch script";
}

TEST_F(Launcher, NonsenseIsRefused) {
  EXPECT_THAT(refused({{"RANK", "4"}, {"WORLD_SIZE", "4"}}), HasSubstr("RANK=4 of WORLD_SIZE=4"));
  EXPECT_THAT(refused({{"PMI_RANK", "x"}, {"PMI_SIZE", "2"}}), HasSubstr("is not a number"));
}

}  // namespace
