// `attune tune` and the doubling plugins, whose kernels are bad in many ways.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "attune_process.hpp"

namespace attune::test {

/// How a candidate's trial went.
struct Seen {
  std::string outcome, reason;
};

/// How it should.
struct Rejection {
  std::string outcome;
  testing::Matcher<std::string> reason;
};

class BadKernelsTest : public testing::Test {
 protected:
  /// `where` are options that say on what device.
  BadKernelsTest(std::string plugin, std::vector<std::string> where)
      : plugin_(std::move(plugin)), where_(std::move(where)) {}

  /// With the bad kernels that are named, joined by commas; "all" are.
  Call call(std::vector<std::string> arguments, const std::string& bad) const {
    arguments.insert(arguments.end(), {"--plugin", plugin_, "-o", "json"});
    arguments.insert(arguments.end(), where_.begin(), where_.end());
    Call made{arguments};
    if (bad != "all") made.environment.push_back("BAD_KERNELS=" + bad);
    return made;
  }
  Outcome tune(const std::string& bad, std::vector<std::string> more = {}) const {
    std::vector<std::string> arguments{"tune", "doubling", "n=4096", "--timeout",
                                       "1s",   "--budget", "60s"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return here.run(call(arguments, bad));
  }
  /// What the database says of each kernel's candidates, by the kernel's name.
  std::map<std::string, Seen> trials(const std::string& problem = "n=4096") const {
    std::map<std::string, Seen> seen;
    for (const auto& row : here.run(call({"db", "show", "doubling", problem}, "all")).json()) {
      if (!row.contains("outcome")) continue;
      const auto& reason = row.at("reason");
      seen[row.at("kernel")] = {row.at("outcome"),
                                reason.is_string() ? reason.get<std::string>() : ""};
    }
    return seen;
  }

  /// Tunes with all of them, and once more.
  void expect_rejections(const std::map<std::string, Rejection>& expected) const {
    const Outcome first = tune("all");
    ASSERT_EQ(first.exit_code, 0) << first.err;
    EXPECT_EQ(first.json().at(0).at("kernel"), "good.doubling");
    EXPECT_EQ(first.json().at(0).at("config"), "times=1");
    EXPECT_EQ(first.json().at(0).at("result"), "stored");
    const std::map<std::string, Seen> seen = trials();
    EXPECT_EQ(seen.size(), expected.size() + 1);
    for (const auto& [name, rejection] : expected) {
      ASSERT_TRUE(seen.contains("bad." + name)) << name;
      const Seen& trial = seen.at("bad." + name);
      EXPECT_EQ(trial.outcome, rejection.outcome) << name << ": " << trial.reason;
      EXPECT_THAT(trial.reason, rejection.reason) << name;
    }

    // Another search does not try them again, and knows why.
    const Outcome second = tune("all", {"--retune"});
    ASSERT_EQ(second.exit_code, 0) << second.err;
    const std::map<std::string, Seen> again = trials();
    for (const auto& [name, rejection] : expected) {
      const Seen& trial = again.at("bad." + name);
      if (rejection.outcome == "slow") continue;  // is right
      EXPECT_EQ(trial.outcome, "quarantined") << name << ": " << trial.reason;
      EXPECT_THAT(trial.reason,
                  testing::AllOf(testing::HasSubstr(rejection.outcome), rejection.reason))
          << name;
    }
  }

  Sandbox here;

 private:
  std::string plugin_;
  std::vector<std::string> where_;
};

}  // namespace attune::test
