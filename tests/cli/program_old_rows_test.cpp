// Keys are durable: what version 0.1 stored is served, merged and exported as it is. tests/data/0.1
// holds a database and its text as that version wrote them; one of the ops has had a field since.
#include <fstream>
#include <iterator>
#include <map>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <attune/core/device.hpp>
#include <attune/core/params.hpp>

#include "attune_process.hpp"

namespace attune::test {
namespace {

using ::testing::HasSubstr;

const std::string kDatabase = OLD_ROWS "/rows.db";
const std::string kText = OLD_ROWS "/rows.jsonl";
/// The class of the rows that any CPU can run.
constexpr std::string_view kAnyCpu = "cpu:x86-64:baseline:1c";

std::string content_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

/// A run with the plugin whose op has one more field than when its row was stored.
Outcome run(const Sandbox& here, std::vector<std::string> arguments) {
  arguments.insert(arguments.end(), {"--plugin", LATER_FIELD_PLUGIN});
  return here.run(arguments);
}

TEST(OldRows, AreExportedAndMergedByteForByte) {
  const Sandbox here;
  const std::string text = content_of(kText);
  ASSERT_FALSE(text.empty());
  EXPECT_EQ(run(here, {"db", "export", kDatabase, "-o", "jsonl"}).out, text);
  EXPECT_EQ(run(here, {"db", "export", kText, "-o", "jsonl"}).out, text);

  const std::string merged = here.file("merged.db");
  ASSERT_EQ(run(here, {"db", "merge", kDatabase, kText, "--output", merged}).exit_code, 0);
  EXPECT_EQ(run(here, {"db", "export", merged, "-o", "jsonl"}).out, text);
  const Outcome difference = run(here, {"db", "diff", kDatabase, merged, "-o", "json"});
  EXPECT_EQ(difference.exit_code, 0) << difference.out;

  ASSERT_EQ(run(here, {"db", "export", kDatabase, "-o", "csv", "--output", here.file("rows.csv")})
                .exit_code,
            0);
  EXPECT_EQ(run(here, {"db", "export", here.file("rows.csv"), "-o", "jsonl"}).out, text);
}

TEST(OldRows, AreValid) {
  const Sandbox here;
  const Outcome outcome = run(here, {"db", "verify", kDatabase, kText, "-o", "json"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.out;
  for (const auto& file : outcome.json()) {
    EXPECT_EQ(file.at("invalid"), 0) << file.at("detail");
    EXPECT_EQ(file.at("bad_rows"), 0) << file.at("detail");
  }
}

/// The rows for any CPU, as those of this one.
class OldRowsHere : public testing::Test {
 protected:
  void SetUp() override {
    std::ifstream text(kText);
    std::ofstream mine(here_.file("mine.jsonl"));
    for (std::string line; std::getline(text, line);) {
      const std::size_t at = line.find(kAnyCpu);
      if (at == std::string::npos) continue;
      rows_.push_back(nlohmann::json::parse(line));
      line.replace(at, kAnyCpu.size(), cpu_device().info().device_class);
      mine << line << '\n';
    }
    mine.close();
    ASSERT_EQ(run(here_, {"db", "import", here_.file("mine.jsonl")}).exit_code, 0);
  }

  /// What a problem gets where a miss is an error, or "" when it is one.
  std::string stored_choice(const std::string& op, const std::string& problem) const {
    std::vector<std::string> call{"explain", op};
    for (const Param& param : parse_params(problem, ' ')) {
      call.push_back(param.name + '=' + param.value);
    }
    call.insert(call.end(), {"--policy", "strict", "-o", "json"});
    for (const auto& row : run(here_, call).json()) {
      if (row.at("section") == "tiers" && row.at("outcome") == "chosen") {
        EXPECT_EQ(row.at("tier"), "persistent");
        return row.at("config");
      }
    }
    return "";
  }

  Sandbox here_;
  std::vector<nlohmann::json> rows_;
};

TEST_F(OldRowsHere, AreServed) {
  ASSERT_EQ(rows_.size(), 5U);
  for (const auto& row : rows_) {
    const std::string config = row.at("config");
    EXPECT_EQ(stored_choice(row.at("op"), row.at("problem")),
              row.at("kernel").get<std::string>() + ' ' + (config.empty() ? "default" : config))
        << row.at("problem");
  }
}

TEST_F(OldRowsHere, DoNotServeAProblemThatHasTheNewField) {
  EXPECT_EQ(stored_choice("copy", "n=1000"), "first.copy threads=2");
  EXPECT_EQ(stored_choice("copy", "n=1000 mirrored=no"), "first.copy threads=2");
  EXPECT_EQ(stored_choice("copy", "n=900"), "first.copy threads=2") << "of the same bucket";
  EXPECT_EQ(stored_choice("copy", "n=1000 mirrored=yes"), "");
}

TEST_F(OldRowsHere, StandBesideRowsThatHaveTheNewField) {
  ASSERT_EQ(run(here_, {"tune", "copy", "n=1000", "mirrored=yes", "--budget", "200ms"}).exit_code,
            0);
  EXPECT_THAT(stored_choice("copy", "n=1000 mirrored=yes"), HasSubstr("reference.copy "));
  EXPECT_EQ(stored_choice("copy", "n=1000"), "first.copy threads=2");
  const std::string text = run(here_, {"db", "export", "-o", "jsonl"}).out;
  EXPECT_THAT(text, HasSubstr(R"("problem":"n=1000",)"));
  EXPECT_THAT(text, HasSubstr(R"("problem":"mirrored=yes n=1000",)"));
}

TEST(Features, AKernelIsNotHandedWhatItDoesNotName) {
  const Sandbox here;
  const std::vector<std::string> problem{"copy", "n=64", "mirrored=yes"};
  const auto with_problem = [&](std::vector<std::string> words, std::vector<std::string> more) {
    words.insert(words.end(), problem.begin(), problem.end());
    words.insert(words.end(), more.begin(), more.end());
    return run(here, words);
  };
  std::map<std::string, nlohmann::json> kernels;
  for (const auto& row : with_problem({"explain"}, {"-o", "json"}).json()) {
    if (row.at("section") == "kernels") kernels[row.at("kernel")] = row;
  }
  EXPECT_EQ(kernels.at("first.copy").at("code"), "feature");
  EXPECT_EQ(kernels.at("first.copy").at("support"), "declines: lacks the feature mirrored");
  EXPECT_EQ(kernels.at("reference.copy").at("code"), nullptr);

  EXPECT_EQ(with_problem({"run"}, {"--policy", "heuristic", "-o", "json"}).json()[0].at("kernel"),
            "reference.copy");
  const Outcome forced = with_problem({"run"}, {"--config", "kernel=first.copy"});
  EXPECT_EQ(forced.exit_code, 2);
  EXPECT_THAT(forced.err, HasSubstr("first.copy: lacks the feature mirrored"));
  const Outcome platform = with_problem({"run"}, {"--platform", "first", "--policy", "heuristic"});
  EXPECT_THAT(platform.err, HasSubstr("first.copy: lacks the feature mirrored"));
  EXPECT_EQ(run(here, {"run", "copy", "n=64", "--config", "kernel=first.copy"}).exit_code, 0);
}

TEST(OldOracles, AreNotAskedForWhatTheyDoNotKnow) {
  const Sandbox here;
  const Outcome tuned = run(here, {"tune", "copy", "n=100", "negated=yes"});
  ASSERT_EQ(tuned.exit_code, 0) << tuned.err;
  EXPECT_THAT(tuned.err,
              HasSubstr("reference.copy declines copy negated=yes n=8: lacks the "
                        "feature negated; candidates are checked against the default's"));

  const Outcome verified = run(here, {"db", "verify", "--relaunch", "-o", "json"});
  EXPECT_EQ(verified.exit_code, 0) << verified.err;
  EXPECT_EQ(verified.json().at(0).at("kernel"), "third.copy");
  EXPECT_EQ(verified.json().at(0).at("result"),
            "not checked: reference.copy declines it: lacks the feature negated");
}

}  // namespace
}  // namespace attune::test
