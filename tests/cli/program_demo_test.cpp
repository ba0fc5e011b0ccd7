// The first screen that a newcomer sees.
#include <chrono>
#include <csignal>
#include <filesystem>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "attune_process.hpp"

namespace attune::test {
namespace {

using ::testing::HasSubstr;

TEST(Demo, ChecksTunesAndFindsAgainOnEightyColumns) {
  const Sandbox here;
  const Outcome outcome = here.run({"demo", "--budget", "900ms"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.out << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("All well"));
  EXPECT_THAT(outcome.out, HasSubstr("3 of 3 found again"));
  for (std::size_t begin = 0; begin < outcome.out.size();) {
    const std::size_t end = outcome.out.find('\n', begin);
    EXPECT_LE(end - begin, 80U) << outcome.out.substr(begin, end - begin);
    begin = end + 1;
  }
  EXPECT_FALSE(std::filesystem::exists(here.database())) << "it has a database of its own";
}

TEST(Demo, TellsProgramsTheSame) {
  const Sandbox here;
  const nlohmann::json rows = here.run({"demo", "--budget", "300ms", "-o", "json"}).json();
  int persistent = 0;
  for (const auto& row : rows) {
    if (row.at("section") == "correctness") {
      EXPECT_EQ(row.at("wrong"), 0);
      EXPECT_GT(row.at("candidates"), 0);
    }
    if (row.at("section") == "second process") {
      EXPECT_EQ(row.at("tunings"), 0);
      persistent += row.at("source") == "persistent" ? 1 : 0;
    }
  }
  EXPECT_EQ(persistent, 3);
}

TEST(Demo, LeavesNothingBehindWhenInterrupted) {
  const Sandbox here;
  const auto leftovers = [&] {
    int count = 0;
    for (const auto& entry : std::filesystem::directory_iterator(here.file(""))) {
      count += entry.path().filename().string().starts_with("attune-demo-") ? 1 : 0;
    }
    return count;
  };
  const pid_t child = here.start({.arguments = {"demo", "--budget", "10m"}});
  for (int i = 0; i < 1000 && leftovers() == 0; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  ::kill(child, SIGINT);
  EXPECT_EQ(here.finish(child).exit_code, 130);
  EXPECT_EQ(leftovers(), 0);
}

}  // namespace
}  // namespace attune::test
