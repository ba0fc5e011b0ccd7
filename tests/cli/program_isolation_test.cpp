// `attune tune` lives with candidates that crash, hang, lie and leave things behind.
#include <signal.h>

#include <chrono>
#include <fstream>
#include <string>
#include <thread>

#include <attune/cache/config_database.hpp>
#include <attune/cache/suspect_note.hpp>

#include "bad_kernels.hpp"

namespace attune::test {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;

class IsolationTest : public BadKernelsTest {
 protected:
  IsolationTest() : BadKernelsTest(BAD_KERNELS_PLUGIN, {}) {}
};

TEST_F(IsolationTest, EveryBadKernelIsRejectedWithTheRightReason) {
  expect_rejections({
      {"leaves_the_tail", {"wrong", HasSubstr("y: not finite at [15]")}},
      {"is_a_little_wrong", {"wrong", HasSubstr("y: relative error")}},
      {"gives_nan", {"wrong", HasSubstr("y: not finite at [0]")}},
      {"is_wrong_when_large", {"wrong", HasSubstr("inf at [1000]")}},
      {"adds_to_its_output", {"wrong", HasSubstr("y: not finite at [0]")}},
      {"is_not_repeatable", {"wrong", HasSubstr("two runs do not give the same bits")}},
      {"writes_past_the_end", {"wrong", HasSubstr("past the end of a block of 64 bytes")}},
      {"writes_before_the_beginning", {"wrong", HasSubstr("before a block of 64 bytes")}},
      {"writes_past_its_workspace", {"wrong", HasSubstr("past the end of a block of 100 bytes")}},
      {"changes_its_input", {"wrong", HasSubstr("changes its inputs")}},
      {"writes_to_null", {"crashed", HasSubstr("killed by SIGSEGV")}},
      {"overflows_the_stack", {"crashed", HasSubstr("killed by SIGSEGV")}},
      {"calls_abort", {"crashed", HasSubstr("killed by SIGABRT")}},
      {"traps", {"crashed", ContainsRegex("killed by SIG(ILL|TRAP)")}},
      {"divides_by_zero", {"crashed", HasSubstr("killed by SIGFPE")}},
      {"throws_in_a_thread",
       {"crashed", AllOf(HasSubstr("killed by SIGABRT"), HasSubstr("nobody catches this"))}},
      {"throws_an_exception", {"failed", HasSubstr("tile does not divide n")}},
      {"throws_a_number", {"failed", HasSubstr("no std::exception")}},
      {"uses_all_memory", {"failed", HasSubstr("out of memory")}},
      {"exits_well", {"crashed", HasSubstr("exit(0)")}},
      {"exits_with_1", {"crashed", HasSubstr("exit(1)")}},
      {"loops_for_ever", {"crashed", HasSubstr("no answer in 1")}},
      {"waits_for_ever", {"crashed", HasSubstr("no answer in 1")}},
      {"closes_all_files", {"crashed", HasSubstr("exit(")}},
      {"talks", {"wrong", HasSubstr("writes to standard output: 'here I am")}},
      {"leaves_threads", {"wrong", HasSubstr("leaves threads behind")}},
      {"is_slow", {"slow", HasSubstr("times slower")}},
      {"is_wrong_later", {"wrong", HasSubstr("at full size: y: NaN at [")}},
      {"crashes_later", {"crashed", HasSubstr("killed by SIGSEGV")}},
  });
}

TEST_F(IsolationTest, ComparingLargeOutputsIsNoHang) {
  const std::string problem = "n=6000000";
  Call tune = call({"tune", "doubling", problem, "--timeout", "1s", "--budget", "60s"}, "whole");
  tune.environment.push_back("DOUBLING_COMPARE_MS=3000");
  const Outcome tuned = here.run(tune);
  ASSERT_EQ(tuned.exit_code, 0) << tuned.err;
  const Seen trial = trials(problem).at("good.whole");
  EXPECT_NE(trial.outcome, "crashed") << trial.reason;
}

TEST_F(IsolationTest, WhatRanOutOfMemoryIsTriedAgainAfterAWeek) {
  ASSERT_EQ(tune("uses_all_memory").exit_code, 0);
  EXPECT_EQ(trials().at("bad.uses_all_memory").outcome, "failed");
  ASSERT_EQ(tune("uses_all_memory", {"--retune"}).exit_code, 0);
  EXPECT_EQ(trials().at("bad.uses_all_memory").outcome, "quarantined");
  ConfigDatabase(here.database(), ConfigDatabase::Mode::kReadWrite).edit([](DatabaseContent& all) {
    for (QuarantineRow& row : all.quarantine) row.created -= kSuspicionSeconds + 1;
  });
  ASSERT_EQ(tune("uses_all_memory", {"--retune"}).exit_code, 0);
  EXPECT_EQ(trials().at("bad.uses_all_memory").outcome, "failed");
}

/// The first child of a process, once it has one.
pid_t child_of(pid_t parent) {
  const std::string path =
      "/proc/" + std::to_string(parent) + "/task/" + std::to_string(parent) + "/children";
  for (int i = 0; i < 1000; ++i) {
    pid_t child = 0;
    if (std::ifstream(path) >> child) return child;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return 0;
}

bool is_running(pid_t process) {
  std::ifstream file("/proc/" + std::to_string(process) + "/stat");
  std::string line;
  std::getline(file, line);
  return !line.empty() && line.find(") Z ") == std::string::npos;
}

/// Whether it takes processor time: it has come to a candidate that loops.
void wait_until_busy(pid_t process) {
  for (int i = 0; i < 1000; ++i) {
    std::ifstream file("/proc/" + std::to_string(process) + "/schedstat");
    double nanoseconds = 0;
    if (file >> nanoseconds && nanoseconds > 1e9) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
}

TEST_F(IsolationTest, NoWorkerOutlivesItsParent) {
  const pid_t parent =
      here.start(call({"tune", "doubling", "n=4096", "--timeout", "60s"}, "loops_for_ever"));
  const pid_t worker = child_of(parent);
  ASSERT_NE(worker, 0);
  wait_until_busy(worker);
  ASSERT_TRUE(is_running(worker));
  ::kill(parent, SIGKILL);
  EXPECT_EQ(here.finish(parent).exit_code, 128 + SIGKILL);
  for (int i = 0; i < 500 && is_running(worker); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  EXPECT_FALSE(is_running(worker));
}

TEST_F(IsolationTest, CtrlCDoesNotWaitForACandidateThatLoops) {
  const pid_t parent =
      here.start(call({"tune", "doubling", "n=4096", "--timeout", "60s"}, "loops_for_ever"));
  const pid_t worker = child_of(parent);
  ASSERT_NE(worker, 0);
  wait_until_busy(worker);
  const auto begin = std::chrono::steady_clock::now();
  ::kill(parent, SIGINT);
  const Outcome outcome = here.finish(parent);
  EXPECT_EQ(outcome.exit_code, 130) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("Resume: attune tune doubling"));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(30));
  EXPECT_FALSE(is_running(worker));
  // Nobody knows yet that it would never have returned.
  ASSERT_EQ(tune("leaves_the_tail").exit_code, 0);
}

TEST_F(IsolationTest, WithoutItACandidateThatThrowsIsNotQuarantined) {
  ASSERT_EQ(tune("throws_an_exception,leaves_the_tail", {"--isolate", "off"}).exit_code, 0);
  EXPECT_EQ(trials().at("bad.throws_an_exception").outcome, "failed");
  ASSERT_EQ(tune("throws_an_exception,leaves_the_tail", {"--isolate", "off", "--retune"}).exit_code,
            0);
  EXPECT_EQ(trials().at("bad.throws_an_exception").outcome, "failed");
  EXPECT_EQ(trials().at("bad.leaves_the_tail").outcome, "quarantined");
}

TEST_F(IsolationTest, WithoutItACrashIsRememberedAllTheSame) {
  EXPECT_EQ(tune("calls_abort", {"--isolate", "off"}).exit_code, 128 + SIGABRT);
  const Outcome second = tune("calls_abort", {"--isolate", "off"});
  EXPECT_EQ(second.exit_code, 0) << second.err;
  EXPECT_THAT(second.err, HasSubstr("is not tried for a week"));
  EXPECT_EQ(trials().at("bad.calls_abort").outcome, "quarantined");
}

TEST_F(IsolationTest, TwoTunersDoNotTimeEachOther) {
  const Sandbox there;
  Call long_one = call({"tune", "doubling", "n=4096", "--timeout", "60s"}, "loops_for_ever");
  Call short_one = call({"tune", "doubling", "n=4096", "--budget", "1s"}, "leaves_the_tail");
  for (Call* each : {&long_one, &short_one}) {
    each->environment.push_back("XDG_RUNTIME_DIR=" + here.file(""));
  }
  const pid_t first = there.start(long_one);
  const pid_t worker = child_of(first);
  ASSERT_NE(worker, 0);
  const pid_t second = here.start(short_one);
  for (int i = 0; i < 1000 && here.errors_so_far().find("waiting") == std::string::npos; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  EXPECT_THAT(here.errors_so_far(), HasSubstr("waiting for process " + std::to_string(first) +
                                              ", which measures on cpu:0"));
  ::kill(first, SIGKILL);
  EXPECT_EQ(there.finish(first).exit_code, 128 + SIGKILL);
  EXPECT_EQ(here.finish(second).exit_code, 0);
}

TEST_F(IsolationTest, ARowOfAnotherLibraryIsTunedAgain) {
  ASSERT_EQ(tune("leaves_the_tail").exit_code, 0);
  EXPECT_EQ(tune("leaves_the_tail").json().at(0).at("result"), "already tuned");
  {
    ConfigDatabase database(here.database(), ConfigDatabase::Mode::kReadWrite);
    ConfigRow row = database.read().rows.at(0);
    row.library_version = "0.0.1";
    database.put(row);
  }
  EXPECT_EQ(tune("leaves_the_tail").json().at(0).at("result"), "kept");
  EXPECT_EQ(tune("leaves_the_tail").json().at(0).at("result"), "already tuned");
}

TEST_F(IsolationTest, SeveralAcceleratorsShareTheProblems) {
  const auto tune_on = [&](const std::string& list) {
    return here.run(
        call({"tune", "doubling", "n=[1024:8192:*2]", "--retune", "--gpus", list, "--budget", "4s"},
             "twins,calls_abort"));
  };
  const Outcome all = tune_on("all");
  ASSERT_EQ(all.exit_code, 0) << all.err;
  ASSERT_EQ(all.json().size(), 4U);
  for (const auto& row : all.json()) EXPECT_EQ(row.at("kernel"), "twin.doubling");
  EXPECT_EQ(all.json().at(3).at("problem"), "n=8192") << "in the order of asking";
  EXPECT_EQ(tune_on("1").exit_code, 0);
  EXPECT_EQ(tune_on("0,7").exit_code, 3);
  EXPECT_EQ(tune_on("first").exit_code, 2);
  EXPECT_EQ(tune("calls_abort", {"--gpus", "all"}).exit_code, 3);
}

TEST_F(IsolationTest, APlatformWithoutItsDeviceIsNotThere) {
  const Outcome outcome = tune("leaves_the_tail", {"--platform", "elsewhere"});
  EXPECT_EQ(outcome.exit_code, 3);
  EXPECT_THAT(outcome.err, HasSubstr("--platform elsewhere: runs on moon, and there is no such"));
}

}  // namespace
}  // namespace attune::test
