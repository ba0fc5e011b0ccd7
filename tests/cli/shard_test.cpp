// Which shard a process takes, under the environment of each launcher.
#include "tuning/shard.hpp"

#include <map>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "program/exit_code.hpp"

namespace attune::test {
namespace {

using cli::Shard;
using cli::UsageError;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using Variables = std::map<std::string, std::string>;

cli::Environment environment_of(Variables variables) {
  return [variables = std::move(variables)](const char* name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    return found == variables.end() ? std::nullopt : std::optional(found->second);
  };
}

Shard automatic(Variables variables) {
  return cli::read_shard("--shard", "auto", environment_of(std::move(variables)));
}

std::string failure_of(Variables variables) {
  try {
    const Shard shard = automatic(std::move(variables));
    return cli::shard_text(shard);
  } catch (const UsageError& error) {
    return str("error: ", error.what());
  }
}

TEST(Shard, IsAsWritten) {
  const auto none = environment_of({});
  EXPECT_EQ(cli::read_shard("--shard", "3/16", none), (Shard{3, 16, "--shard"}));
  EXPECT_EQ(cli::read_shard("--shard", "0/1", none), (Shard{0, 1, "--shard"}));
  for (const char* text : {"", "3", "16/16", "-1/4", "1/0", "0/-1", "a/b", "1/2/3", "1 /2", "/4",
                           "1/", "0/10001", "0/99999999999999999999", "automatic"}) {
    EXPECT_THROW(cli::read_shard("--shard", text, none), UsageError) << text;
  }
}

TEST(Shard, NothingFoundIsAnErrorAndNeverEverything) {
  EXPECT_THAT(failure_of({}), HasSubstr("error: --shard auto: no launcher says"));
  EXPECT_THAT(failure_of({{"SLURM_PROCID", "1"}}), HasSubstr("no launcher says"));
  EXPECT_THAT(failure_of({{"JOB_COMPLETION_INDEX", "1"}}), HasSubstr("no launcher says"));
}

TEST(Shard, OfEachLauncher) {
  EXPECT_EQ(automatic({{"ATTUNE_SHARD", "2/5"}}), (Shard{2, 5, "ATTUNE_SHARD"}));
  EXPECT_EQ(automatic({{"OMPI_COMM_WORLD_RANK", "2"}, {"OMPI_COMM_WORLD_SIZE", "4"}}),
            (Shard{2, 4, "Open MPI"}));
  EXPECT_EQ(automatic({{"SLURM_PROCID", "7"}, {"SLURM_NTASKS", "8"}}), (Shard{7, 8, "Slurm step"}));
  EXPECT_EQ(automatic({{"PMI_RANK", "0"}, {"PMI_SIZE", "3"}}), (Shard{0, 3, "PMI"}));
  EXPECT_EQ(automatic({{"FLUX_TASK_RANK", "1"}, {"FLUX_JOB_SIZE", "2"}}), (Shard{1, 2, "Flux"}));
  EXPECT_EQ(automatic({{"RANK", "5"}, {"WORLD_SIZE", "16"}}), (Shard{5, 16, "torchrun"}));
  EXPECT_EQ(automatic({{"JOB_COMPLETION_INDEX", "5"}, {"ATTUNE_SHARDS", "6"}}),
            (Shard{5, 6, "Kubernetes"}));
}

TEST(Shard, OfASlurmArrayCountsFromItsFirstTaskByItsStep) {
  Variables array{{"SLURM_ARRAY_TASK_ID", "14"},
                  {"SLURM_ARRAY_TASK_MIN", "10"},
                  {"SLURM_ARRAY_TASK_STEP", "2"},
                  {"SLURM_ARRAY_TASK_COUNT", "5"}};
  EXPECT_EQ(automatic(array), (Shard{2, 5, "Slurm array"}));
  array["SLURM_ARRAY_TASK_ID"] = "13";
  EXPECT_THAT(failure_of(array), HasSubstr("error: Slurm array: task 13 is none of those"));
  array["SLURM_ARRAY_TASK_ID"] = "40";  // of a list with gaps
  EXPECT_THAT(failure_of(array), HasSubstr("number 15 of 5: expected 0 to 4"));
}

TEST(Shard, OfAStepWithinAnArrayIsAShareOfItsTask) {
  Variables array{{"SLURM_ARRAY_TASK_ID", "1"},    {"SLURM_ARRAY_TASK_MIN", "0"},
                  {"SLURM_ARRAY_TASK_COUNT", "3"}, {"SLURM_PROCID", "1"},
                  {"SLURM_NTASKS", "4"},           {"SLURM_STEP_ID", "0"},
                  {"ENVIRONMENT", "BATCH"}};
  EXPECT_EQ(automatic(array), (Shard{5, 12, "Slurm array and Slurm step"}));
  array["OMPI_COMM_WORLD_RANK"] = "0";
  array["OMPI_COMM_WORLD_SIZE"] = "2";
  EXPECT_EQ(automatic(array), (Shard{2, 6, "Slurm array and Open MPI"}))
      << "mpirun starts one daemon a node as a step";
}

TEST(Shard, ABatchScriptIsNoTaskOfItsJob) {
  const Variables batch{{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "8"}, {"ENVIRONMENT", "BATCH"}};
  EXPECT_THAT(failure_of(batch), HasSubstr("no launcher says"));
}

TEST(Shard, WhatTheUserSaysComesFirst) {
  EXPECT_EQ(automatic({{"ATTUNE_SHARD", "1/2"},
                       {"SLURM_ARRAY_TASK_ID", "3"},
                       {"SLURM_ARRAY_TASK_COUNT", "4"},
                       {"RANK", "0"},
                       {"WORLD_SIZE", "1"}}),
            (Shard{1, 2, "ATTUNE_SHARD"}));
}

TEST(Shard, ABadValueNamesItsVariable) {
  for (const char* text : {"auto", "7", "2/2", "0/x"}) {
    EXPECT_THAT(failure_of({{"ATTUNE_SHARD", text}}),
                AllOf(HasSubstr(str("environment variable ATTUNE_SHARD: '", text, "'")),
                      Not(HasSubstr("or auto"))));
  }
  EXPECT_THAT(failure_of({{"RANK", "one"}, {"WORLD_SIZE", "2"}}),
              HasSubstr("environment variable RANK: 'one'"));
  EXPECT_THAT(failure_of({{"PMI_RANK", "2"}, {"PMI_SIZE", "2"}}), HasSubstr("PMI: number 2 of 2"));
  EXPECT_THAT(failure_of({{"PMI_RANK", "2"}, {"PMI_SIZE", "0"}}), HasSubstr("PMI_SIZE: '0'"));
}

TEST(Shard, TheLocalRankIsTheLaunchers) {
  EXPECT_EQ(cli::local_rank(environment_of({})), std::nullopt);
  EXPECT_EQ(cli::local_rank(environment_of({{"OMPI_COMM_WORLD_LOCAL_RANK", "3"}})), 3);
  EXPECT_EQ(cli::local_rank(environment_of({{"SLURM_LOCALID", "1"}, {"LOCAL_RANK", "2"}})), 1);
  EXPECT_EQ(cli::local_rank(environment_of({{"LOCAL_RANK", "2"}})), 2);
  EXPECT_THROW(cli::local_rank(environment_of({{"LOCAL_RANK", "-2"}})), UsageError);
}

TEST(Shard, NamesOfDatabasesSortAsTheirNumbers) {
  EXPECT_EQ(cli::shard_file_name({3, 16, ""}), "003-of-016.db");
  EXPECT_EQ(cli::shard_file_name({42, 5000, ""}), "0042-of-5000.db");
}

}  // namespace
}  // namespace attune::test
