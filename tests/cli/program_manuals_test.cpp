// What the program says of itself: settings, completion, manual pages, and the command that
// reproduces a call.
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "attune_process.hpp"

namespace attune::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

void write_text(const std::string& path, const std::string& text) { std::ofstream(path) << text; }

std::string read_text(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

const nlohmann::json& row_named(const nlohmann::json& rows, const std::string& setting) {
  for (const nlohmann::json& row : rows) {
    if (row.at("setting") == setting) return row;
  }
  static const nlohmann::json kNone = {{"value", nullptr}, {"origin", "absent"}};
  return kNone;
}

TEST(Env, SaysWhatIsInForceAndWhereItComesFrom) {
  const Sandbox here;
  const nlohmann::json plain = here.run({"env", "-o", "json"}).json();
  EXPECT_EQ(row_named(plain, "ATTUNE_POLICY").at("value"), "tune");
  EXPECT_EQ(row_named(plain, "ATTUNE_POLICY").at("origin"), "default");
  EXPECT_EQ(row_named(plain, "ATTUNE_DB").at("value"), here.database());
  EXPECT_THAT(row_named(plain, "ATTUNE_DB").at("origin").get<std::string>(),
              StartsWith("default, in "));
  EXPECT_TRUE(row_named(plain, "ATTUNE_SYSTEM_DB_PATH").at("value").is_null());

  const nlohmann::json set = here.run(Call{.arguments = {"env", "--db", "mine.db", "-o", "json"},
                                           .environment = {"ATTUNE_POLICY=db"}})
                                 .json();
  EXPECT_EQ(row_named(set, "ATTUNE_POLICY").at("value"), "db");
  EXPECT_EQ(row_named(set, "ATTUNE_POLICY").at("origin"), "ATTUNE_POLICY");
  EXPECT_EQ(row_named(set, "ATTUNE_DB").at("value"), "mine.db");
  EXPECT_EQ(row_named(set, "ATTUNE_DB").at("origin"), "--db");
}

TEST(Env, AMisspeltVariableIsARowWithASuggestionAndExitStatusOne) {
  const Outcome outcome =
      Sandbox().run(Call{.arguments = {"env", "-q"}, .environment = {"ATTUNE_SYSTEM_DB=/tmp"}});
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_THAT(outcome.out, AllOf(HasSubstr("ATTUNE_SYSTEM_DB "),
                                 HasSubstr("did you mean 'ATTUNE_SYSTEM_DB_PATH'?")));
}

/// What bash offers for the last of `words`.
std::string completed(const Sandbox& here, const std::string& words) {
  write_text(here.file("script"), here.run({"completion", "bash"}).out);
  write_text(here.file("ask"), "source '" + here.file("script") + "'\nCOMP_WORDS=(" + words +
                                   ")\nCOMP_CWORD=$((${#COMP_WORDS[@]} - 1))\n_attune\n"
                                   "printf '%s\\n' \"${COMPREPLY[@]}\" >'" +
                                   here.file("reply") + "'\n");
  EXPECT_EQ(std::system(("bash '" + here.file("ask") + "'").c_str()), 0);
  return read_text(here.file("reply"));
}

TEST(Completion, BashCompletesVerbsOptionsValuesAndOps) {
  const Sandbox here;
  EXPECT_EQ(completed(here, "attune expl"), "explain\n");
  EXPECT_EQ(completed(here, "attune help tun"), "tune\n");
  EXPECT_EQ(completed(here, "attune tune --budg"), "--budget\n");
  EXPECT_EQ(completed(here, "attune tune --policy str"), "strict\nstrict-fresh\n");
  EXPECT_EQ(completed(here, "attune run -o jsonl"), "jsonl\n");
  EXPECT_EQ(completed(here, "attune run recurrent_d"), "recurrent_decode\n");
  EXPECT_EQ(completed(here, "attune db verif"), "verify\n");
  EXPECT_EQ(completed(here, "attune completion z"), "zsh\n");
}

TEST(Completion, ZshIsOfferedEveryVerbAndOption) {
  const Outcome outcome = Sandbox().run({"completion", "zsh"});
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_THAT(outcome.out, AllOf(StartsWith("#compdef attune\n"), HasSubstr("'tune:"),
                                 HasSubstr("--budget["), HasSubstr("recurrent_decode")));
}

TEST(Completion, AnotherShellIsAUsageError) {
  const Outcome outcome = Sandbox().run({"completion", "bsh"});
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_THAT(outcome.err, HasSubstr("did you mean 'bash'?"));
}

/// What groff warns of on a page; nothing where there is no groff.
std::string groff_warnings(const Sandbox& here, const std::string& page) {
  write_text(here.file("page.1"), page);
  const std::string command = "if command -v groff >/dev/null; then groff -man -ww -z '" +
                              here.file("page.1") + "' 2>'" + here.file("warnings") + "'; fi";
  EXPECT_EQ(std::system(command.c_str()), 0);
  return read_text(here.file("warnings"));
}

TEST(Man, EveryVerbHasAPageWithItsOptions) {
  const Sandbox here;
  for (const char* verb : {"", "tune", "db", "report", "env", "completion", "man", "bench"}) {
    const Outcome outcome = *verb == '\0' ? here.run({"man"}) : here.run({"man", verb});
    EXPECT_EQ(outcome.exit_code, 0) << verb;
    EXPECT_THAT(outcome.out, AllOf(StartsWith(".TH ATTUNE"), HasSubstr("\n.SH NAME\n"),
                                   HasSubstr("\\-\\-policy")))
        << verb;
    EXPECT_EQ(groff_warnings(here, outcome.out), "") << verb;
  }
}

TEST(Man, WritesAllPagesToAFolder) {
  const Sandbox here;
  ASSERT_EQ(here.run({"man", "--folder", here.file("man/man1")}).exit_code, 0);
  EXPECT_EQ(read_text(here.file("man/man1/attune.1")), here.run({"man"}).out);
  EXPECT_EQ(read_text(here.file("man/man1/attune-tune.1")), here.run({"man", "tune"}).out);
  const Outcome outcome = here.run({"man", "--folder", "/proc/absent"});
  EXPECT_EQ(outcome.exit_code, 5);
  EXPECT_THAT(outcome.err, HasSubstr("--folder /proc/absent"));
}

TEST(LogCommand, ReproducesTheCallWithItsConfig) {
  const Sandbox here;
  const Outcome call = here.run(
      Call{.arguments = {"run", "gated_linear_attention", "T=9", "H=2", "D=8", "--policy", "db"},
           .environment = {"ATTUNE_LOG_CMD=1"}});
  ASSERT_EQ(call.exit_code, 0) << call.err;
  const std::size_t at = call.err.find("attune run gated_linear_attention ");
  ASSERT_NE(at, std::string::npos) << call.err;
  std::istringstream line(call.err.substr(at, call.err.find('\n', at) - at));
  std::string program;
  line >> program;
  std::vector<std::string> arguments;
  for (std::string word; line >> word;) arguments.push_back(word);
  arguments.insert(arguments.end(), {"-o", "json"});
  const Outcome again = here.run(arguments);
  ASSERT_EQ(again.exit_code, 0) << again.err;
  EXPECT_EQ(again.json().at(0).at("source"), "override");
  EXPECT_EQ(here.run({"run", "recurrent_attention", "T=2", "D=2", "--policy", "db"})
                .err.find("attune run"),
            std::string::npos)
      << "only when asked to";
}

}  // namespace
}  // namespace attune::test
