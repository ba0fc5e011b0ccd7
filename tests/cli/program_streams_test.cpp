// Where output goes, and that none is lost.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "attune_process.hpp"

namespace attune::test {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

const std::vector<std::string> kProblem{"recurrent_attention", "T=8", "H=1", "D=4"};

std::vector<std::string> with_problem(const std::string& verb, std::vector<std::string> more) {
  std::vector<std::string> arguments{verb};
  arguments.insert(arguments.end(), kProblem.begin(), kProblem.end());
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

TEST(Streams, EveryVerbPrintsAnArrayOfObjectsAndNothingElse) {
  const Sandbox here;
  for (const auto& arguments : std::vector<std::vector<std::string>>{
           {"ops", "-o", "json"},
           {"ops", "recurrent_attention", "-o", "json"},
           {"doctor", "-o", "json"},
           with_problem("tune", {"--dry-run", "-o", "json"}),
           with_problem("tune", {"--budget", "200ms", "-o", "json", "-v"}),
           with_problem("run", {"-o", "json"}),
           with_problem("explain", {"-o", "json"}),
           with_problem("bench", {"--all", "--iters", "3", "-o", "json"}),
           {"db", "ls", "-o", "json"},
           with_problem("db", {"-o", "json"}),
           {"db", "path", "-o", "json"},
           {"db", "verify", "-o", "json"}}) {
    std::vector<std::string> call = arguments;
    if (call[0] == "db" && call[1] == "recurrent_attention") call.insert(call.begin() + 1, "show");
    const Outcome outcome = here.run(call);
    EXPECT_EQ(outcome.exit_code, 0) << call[0] << outcome.err;
    const nlohmann::json rows = outcome.json();
    ASSERT_TRUE(rows.is_array() && !rows.empty()) << call[0];
    for (const auto& row : rows) EXPECT_TRUE(row.is_object());
    EXPECT_THAT(outcome.err, Not(HasSubstr("[{"))) << "data on standard error";
  }
}

TEST(Streams, QuietLeavesStandardErrorEmpty) {
  const Sandbox here;
  const Outcome outcome = here.run(with_problem("tune", {"--budget", "200ms", "-q"}));
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_THAT(outcome.out, HasSubstr("stored"));
  EXPECT_EQ(outcome.err, "");
}

TEST(Streams, APipeThatNobodyReadsIsNoFailure) {
  const Outcome outcome = Sandbox().run(Call{.arguments = {"ops"}, .output = Stdout::kClosedPipe});
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_EQ(outcome.err, "");
}

TEST(Streams, AFullDiskIsAFailureThatIsTold) {
  const Outcome outcome = Sandbox().run(Call{.arguments = {"ops"}, .output = Stdout::kFull});
  EXPECT_EQ(outcome.exit_code, 5);
  EXPECT_THAT(outcome.err, StartsWith("attune: ops: standard output: No space left"));
}

TEST(Streams, AFileSizeLimitIsAFailureThatIsTold) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP()
      << "ThreadSanitizer's own start-up writes a file and dies of the limit before main()";
#endif
  const Sandbox here;
  const std::string line =
      "ulimit -f 0; exec " ATTUNE_PROGRAM " ops > " + here.file("limited") + " 2>/dev/null";
  const int status = std::system(("sh -c '" + line + "'").c_str());
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 5);
}

TEST(Streams, WithoutStandardOutputTheDatabaseStaysADatabase) {
  const Sandbox here;
  const Outcome outcome = here.run(
      Call{.arguments = with_problem("tune", {"--budget", "200ms"}), .output = Stdout::kClosed});
  EXPECT_EQ(outcome.exit_code, 5);
  EXPECT_EQ(here.run({"db", "verify"}).exit_code, 0);
  EXPECT_EQ(here.run({"db", "ls", "-o", "json"}).json().size(), 1U);
}

TEST(Streams, ColorIsForTerminalsUnlessItIsAskedFor) {
  const Sandbox here;
  EXPECT_THAT(here.run({"doctor"}).out, Not(HasSubstr("\x1b")));
  EXPECT_THAT(here.run({"doctor", "--color", "always"}).out, HasSubstr("\x1b[32m"));
  EXPECT_THAT(here.run({"doctor", "--color", "never"}).out, Not(HasSubstr("\x1b")));
}

TEST(Streams, SpecsComeFromStandardInputAndFiles) {
  const Sandbox here;
  const Outcome outcome = here.run(
      Call{.arguments = {"tune", "recurrent_attention", "-", "--dry-run", "-o", "json"},
           .input = "T=8,16 D=4\n{\"op\": \"lightning_attention\", \"T\": 4, \"D\": 2}\n"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const nlohmann::json rows = outcome.json();
  ASSERT_EQ(rows.size(), 3U);
  EXPECT_EQ(rows[0]["problem"], "T=8 K=4 V=4");
  EXPECT_EQ(rows[2]["op"], "lightning_attention");
}

TEST(Streams, APrintedProblemIsASpec) {
  const Sandbox here;
  const auto problem_of = [&](const std::vector<std::string>& spec) {
    std::vector<std::string> arguments{"tune", "--dry-run", "-o", "json"};
    arguments.insert(arguments.end(), spec.begin(), spec.end());
    return here.run(arguments).json().at(0).at("problem").get<std::string>();
  };
  const std::string first =
      problem_of({"gated_linear_attention", "B=2", "T=8", "H=4", "Hkv=2", "D=4", "dtype=bf16"});
  EXPECT_EQ(here.run(Call{.arguments = {"tune", "--dry-run", "-o", "json", "-"},
                          .input = "gated_linear_attention " + first})
                .json()
                .at(0)
                .at("problem"),
            first);
}

}  // namespace
}  // namespace attune::test
