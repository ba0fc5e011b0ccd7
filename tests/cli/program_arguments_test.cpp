// Command lines, right and wrong: exit codes, messages, help.
#include <filesystem>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "attune_process.hpp"

namespace attune::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

struct BadCall {
  std::vector<std::string> arguments;
  int exit_code;
  std::string message;  // part of it
};

const std::vector<BadCall>& bad_calls() {
  static const std::string kOp = "recurrent_attention";
  static const std::vector<BadCall> calls{
      {{"tunee"}, 2, "no verb 'tunee'; did you mean 'tune'?"},
      {{"help", "tunee"}, 2, "did you mean 'tune'?"},
      {{"--bugdet", "3s", "ops"},
       2,
       "no option '--bugdet' before a verb; did you mean '--budget'?"},
      {{"-o", "json"}, 2, "expected a verb"},
      {{"ops", "--bakend", "cpu"}, 2, "no option '--bakend'; did you mean '--backend'?"},
      {{"ops", "--dev", "0"}, 2, "no option '--dev'"},
      {{"ops", "-o", "jsn"},
       2,
       "-o 'jsn': expected table, json, jsonl, csv, md; did you mean 'json'?"},
      {{"ops", "-o", "json", "-o", "csv"}, 2, "--output-format is given twice"},
      {{"ops", "--color"}, 2, "--color"},
      {{"ops", "--color", "blue"}, 2, "--color 'blue': expected auto, always, never"},
      {{"ops", "--platform", "referense"}, 2, "did you mean 'reference'?"},
      {{"ops", "--seed", "-1"}, 2, "--seed '-1': expected a whole number from 0"},
      {{"ops", "--policy", "dbb"},
       2,
       "--policy 'dbb': expected tune, db, heuristic, strict, strict-fresh; did you mean 'db'?"},
      {{"ops", "recurent_attention"},
       2,
       "no op 'recurent_attention'; did you mean 'recurrent_attention'?"},
      {{"ops", kOp, kOp}, 2, "expected one op"},
      {{"ops", "--plugin", "/absent.so"}, 3, "/absent.so"},
      {{"run"}, 2, "expected an op"},
      {{"run", kOp, "T=4", "D=4", "dtyp=f32"}, 2, "no field 'dtyp'; did you mean 'dtype'?"},
      {{"run", kOp, "T=four", "D=4"}, 2, "T=four"},
      {{"run", kOp, "T=4", "D=4", "dtype=f61"}, 2, "dtype=f61: expected f32"},
      {{"run", kOp, "T=4", "D=4", "--budget", "30"}, 2, "--budget '30': expected a time such as"},
      {{"run", kOp, "T=4", "D=4", "--scale", "nan"}, 2, "--scale 'nan': expected a finite number"},
      {{"run", kOp, "T=4", "D=4", "--scale", "1"}, 2, "--scale goes with --input"},
      {{"run", kOp, "--input", "/absent.safetensors"}, 2, "/absent.safetensors"},
      {{"run", kOp, "T=4", "--input", "x"}, 2, "'T=4'"},
      {{"run", "recurrent_decode", "B=1", "D=4", "--backward"}, 2, "has no backward pass"},
      {{"run", kOp, "T=4", "D=4", "--config", "tile"}, 2, "--config 'tile'"},
      {{"run", kOp, "T=4", "D=4", "--config", "kernel=refrence.recurrent_attention"},
       2,
       "did you mean 'reference.recurrent_attention'?"},
      {{"run", kOp, "T=4", "D=4", "--config", "kernel=reference.recurrent_attention,x=1"},
       2,
       "'x'"},
      {{"run", kOp, "T=4", "D=4", "--device", "99"}, 3, "no device cpu:99; there is cpu:0"},
      {{"run", kOp, "T=4", "D=4", "--backend", "cup"}, 2, "did you mean 'cpu'?"},
      {{"run", kOp, "T=4", "D=4", "--policy", "strict"}, 1, "strict"},
      {{"explain"}, 2, "expected an op"},
      {{"explain", "@/absent.jsonl"}, 2, "'@/absent.jsonl': cannot be opened"},
      {{"bench", kOp, "T=4", "D=4", "--iters", "0"}, 2, "--iters '0'"},
      {{"bench", "--suite", "h20"},
       2,
       "--suite 'h20': expected h200, cpu, models, serve, cliffs, untuned; did you mean 'h200'?"},
      {{"bench", "--suite", "models", "--problems", "9"}, 2, "--problems goes with a suite that"},
      {{"bench", "--suite", "cliffs", "--problems", "-1"}, 2, "--problems '-1'"},
      {{"bench", "--suite", "cliffs", "dtyp=f32"}, 2, "no field 'dtyp'; did you mean 'dtype'?"},
      {{"bench", "--suite", "cliffs", "recurrent_decode"}, 2, "'recurrent_decode': expected"},
      {{"bench", "--suite", "cliffs", "--threads", "1"}, 2, "--threads goes with"},
      {{"bench", "--suite", "h200", "--all"}, 2, "--all goes with OP SPEC"},
      {{"bench", "--suite", "h200", "--threads", "1"}, 2, "--threads goes with"},
      {{"bench", "--suite", "cpu", "--threads", "1,0"},
       2,
       "--threads '1,0': expected whole numbers"},
      {{"bench", "--suite", "cpu", "--threads", "1,"}, 2, "--threads '1,'"},
      {{"bench", "--suite", "h200", "T=7"}, 2, "no row has 'T=7'"},
      {{"bench", "--suite", "h200", "--device", "99"}, 3, "no device gpu:99"},
      {{"tune", kOp, "T=[4:8]", "D=4"}, 2, "T=[4:8]"},
      {{"tune", kOp, "T=[1:99999:+1]", "D=4", "--dry-run"}, 2, "T: more than 10000"},
      {{"tune", kOp, "T=4", "D=4", "--config", "a=1"}, 2, "--config"},
      {{"tune", kOp, "T=4", "D=4", "--db", "/"}, 4, "--db /"},
      {{"tune", kOp, "T=4", "D=4", "--backend", "cpu", "--gpus", "local"},
       3,
       "--gpus local: there is no accelerator"},
      {{"check"}, 2, "expected files"},
      {{"db"}, 2, "expected one of path, ls, show, stats, verify, merge"},
      {{"db", "lss"}, 2, "did you mean 'ls'?"},
      {{"db", "ls", "/absent.db"}, 4, "/absent.db"},
      {{"db", "show", "xyz"}, 2, "'xyz' is neither an op nor a key"},
      {{"db", "verify", "--shards", "2"}, 2, "--shards goes with --covers"},
      {{"doctor", "now"}, 2, "'now'"},
  };
  return calls;
}

std::size_t count(const std::string& text, const std::string& part) {
  std::size_t found = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1))
    ++found;
  return found;
}

TEST(BadArguments, EndWithTheirExitCodeAndALineThatNamesThem) {
  const Sandbox here;
  for (const BadCall& call : bad_calls()) {
    std::string line;
    for (const std::string& word : call.arguments) line += ' ' + word;
    const Outcome outcome = here.run(call.arguments);
    EXPECT_EQ(outcome.exit_code, call.exit_code) << line << "\n" << outcome.err;
    EXPECT_EQ(outcome.out, "") << line;
    EXPECT_THAT(outcome.err, AllOf(StartsWith("attune: "), HasSubstr(call.message))) << line;
    EXPECT_EQ(count(outcome.err, "\n"), count(outcome.err, "attune: ")) << line << "\n"
                                                                        << outcome.err;
    EXPECT_EQ(outcome.err.find("--help'") != std::string::npos, call.exit_code == 2) << line;
  }
}

TEST(BadArguments, OfAListNameItsLine) {
  const Sandbox here;
  const std::string list = here.file("shapes.txt");
  for (const auto& [line, message] : {std::pair("recurent_attention T=4 D=4", "no op"),
                                      std::pair("recurrent_attention T=4 gat=g", "no field 'gat'"),
                                      std::pair("recurrent_attention T=4", "K: got 0")}) {
    std::ofstream(list) << "recurrent_attention T=4 D=4\n\n" << line << '\n';
    const Outcome outcome = here.run({"tune", "@" + list, "--dry-run"});
    EXPECT_EQ(outcome.exit_code, 2);
    EXPECT_THAT(outcome.err, HasSubstr(list + ":3: "));
    EXPECT_THAT(outcome.err, HasSubstr(message));
  }
}

TEST(BadArguments, NothingAtAllShowsHelpAndIsAnError) {
  const Outcome outcome = Sandbox().run(std::vector<std::string>{});
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_EQ(outcome.out, "");
  EXPECT_THAT(outcome.err, HasSubstr("usage: attune VERB"));
}

TEST(BadArguments, ControlCharactersDoNotReachTheTerminal) {
  const Outcome outcome = Sandbox().run({"ops", "\x1b[2Jop\nattune: all is well"});
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_THAT(outcome.err, Not(HasSubstr("\x1b")));
  EXPECT_THAT(outcome.err, HasSubstr("\\x1b[2Jop"));
}

std::vector<const char*> all_verbs() {
  return {"demo", "run",    "check", "tune",   "explain", "bench",      "db",
          "ops",  "doctor", "stats", "report", "env",     "completion", "man"};
}

TEST(Help, EveryVerbShowsExamplesUsageAndOptions) {
  const Sandbox here;
  for (const char* verb : all_verbs()) {
    const Outcome outcome = here.run({verb, "--help"});
    EXPECT_EQ(outcome.exit_code, 0) << verb;
    EXPECT_THAT(outcome.out,
                AllOf(StartsWith(std::string("attune ") + verb), HasSubstr("\nexamples:\n"),
                      HasSubstr("\nusage:\n"), HasSubstr("--output-format")));
    EXPECT_EQ(outcome.err, "");
    EXPECT_EQ(here.run({"help", verb}).out, outcome.out);
    EXPECT_EQ(here.run({"help", "help"}).out, here.run({"--help"}).out);
    EXPECT_THAT(here.run({"--help"}).out, HasSubstr(std::string("\n  ") + verb + " "));
  }
}

TEST(Help, FitsEightyColumns) {
  const Sandbox here;
  for (const char* verb : all_verbs()) {
    const std::string text = here.run({verb, "--help"}).out + here.run({"--help"}).out;
    for (std::size_t begin = 0; begin < text.size();) {
      const std::size_t end = text.find('\n', begin);
      const std::string line = text.substr(begin, end - begin);
      EXPECT_TRUE(line.size() <= 80 || line.starts_with("  attune ")) << line;
      begin = end + 1;
    }
  }
}

TEST(Suite, NeedsItsDevice) {
  const Outcome outcome = Sandbox().run(
      Call{.arguments = {"bench", "--suite", "h200"}, .environment = {"CUDA_VISIBLE_DEVICES="}});
  EXPECT_EQ(outcome.exit_code, 3);
  EXPECT_EQ(outcome.out, "");
  EXPECT_THAT(outcome.err, AllOf(HasSubstr("no device gpu:0"), HasSubstr("there is cpu:0")));
}

TEST(Suite, OfTheHostMeasuresItsCeilingsAndHoldsRowsAgainstThem) {
  const Outcome outcome =
      Sandbox().run({"bench", "--suite", "cpu", "recurrent_attention", "T=64", "D=64", "gate=g",
                     "--threads", "1", "--iters", "3", "-o", "jsonl"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, AllOf(HasSubstr(R"("ceiling":"multiply-add baseline")"),
                                 HasSubstr(R"("ceiling":"copy")")));
  EXPECT_THAT(outcome.out,
              AllOf(HasSubstr(R"("problem":"T=64 H=16 D=64 gate=g","threads":1)"),
                    HasSubstr(R"("must_speedup":3.0)"), HasSubstr(R"("quantity":"speedup")")));
}

TEST(Suite, OfCliffsWalksOverRandomProblemsAndWhatIsBesideThem) {
  const std::vector<std::string> call{"bench",   "--suite", "cliffs",     "recurrent_attention",
                                      "T=64",    "D=16",    "H=2",        "B=1",
                                      "-o",      "jsonl",   "--seed",     "5",
                                      "--iters", "1",       "--problems", "3"};
  const Outcome outcome = Sandbox().run(call);
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  for (const char* section : {"summary", "worst", "neighbours", "problems"}) {
    EXPECT_THAT(outcome.out, HasSubstr(std::string(R"("section":")") + section + '"'));
  }
  EXPECT_THAT(outcome.out, AllOf(HasSubstr(R"("walk":"random","kernel":"all","problems":3,)"),
                                 HasSubstr(R"("walk":"grid","op":"recurrent_attention")"),
                                 HasSubstr(R"("problem":"T=64 H=2 K=16 V=16)")));
}

TEST(Suite, OfUntunedProblemsComparesEachWithItsOwnTuning) {
  const Outcome outcome =
      Sandbox().run({"bench", "--suite", "untuned", "T=64", "D=16", "H=1,2", "B=1", "gate=g",
                     "--problems", "2", "--budget", "1s", "--iters", "1", "-o", "jsonl"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_THAT(outcome.out,
              AllOf(HasSubstr(R"("section":"summary","problems":2,"near_tuned":)"),
                    HasSubstr(R"("worst_ratio":)"), HasSubstr(R"("tier":"heuristic")")));
}

TEST(Suite, OfServingTimesStepsBesideWhatTheyReplace) {
  const Outcome outcome = Sandbox().run({"bench", "--suite", "serve", "mixed", "64x1+8x512",
                                         "--backend", "cpu", "--iters", "1", "-o", "jsonl"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_THAT(outcome.out,
              AllOf(HasSubstr(R"({"about":"mixed 64x1+8x512 state=f32","problem":"recurrent_)"),
                    HasSubstr(R"("beside":"prompts alone + rows alone","beside_us":)"),
                    HasSubstr(R"("kernel":"simd.)")));
}

TEST(Suite, OfServingTakesNoNumberOfProblems) {
  const Outcome outcome = Sandbox().run({"bench", "--suite", "serve", "--problems", "3"});
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_THAT(outcome.err, HasSubstr("--problems goes with a suite that draws them"));
}

TEST(Version, SaysTheCommitAndWhatWasBuilt) {
  const Sandbox here;
  const Outcome outcome = here.run({"--version"});
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_THAT(outcome.out, ::testing::MatchesRegex(
                               "attune [0-9]+\\.[0-9]+\\.[0-9]+( .commit [0-9a-f]{9,40}[+]?.)?\n"
                               "GPU code: [a-zA-Z0-9_ ()]+\nCPU code: baseline[a-z0-9_ ]*\n"));
  EXPECT_EQ(here.run({"tune", "--version"}).out, outcome.out);
}

TEST(GlobalOptions, MayStandBeforeTheVerb) {
  const Outcome outcome = Sandbox().run({"-o", "json", "--color=never", "ops", "recurrent_decode"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_TRUE(outcome.json().is_array());
}

TEST(Doctor, WarnsAboutVariablesThatAreNotAttunes) {
  const Sandbox here;
  EXPECT_EQ(here.run({"doctor"}).exit_code, 0);
  const Outcome outcome =
      here.run(Call{.arguments = {"doctor", "-q"}, .environment = {"ATTUNE_POLCY=db"}});
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_THAT(outcome.out, HasSubstr("did you mean 'ATTUNE_POLICY'?"));
}

TEST(Doctor, SaysWhatSettingsOthersWouldNotTake) {
  const Sandbox here;
  const auto failed = [&](const std::string& setting) {
    const Outcome outcome = here.run(Call{.arguments = {"doctor", "-q"}, .environment = {setting}});
    EXPECT_EQ(outcome.exit_code, 1) << outcome.out;
    return outcome.out;
  };
  EXPECT_THAT(failed("ATTUNE_RELOAD_SECONDS=soon"),
              HasSubstr("ATTUNE_RELOAD_SECONDS: 'soon': expected a whole number of seconds"));
  EXPECT_THAT(failed("ATTUNE_RECORD=/dev/zero"), HasSubstr("nothing is recorded"));
}

TEST(Doctor, SaysWhatDoesNotWorkAndWhatToDo) {
  const Sandbox here;
  const Outcome good = here.run({"doctor", "-o", "json"});
  EXPECT_EQ(good.exit_code, 0) << good.out;
  std::filesystem::create_directories(here.file("data/attune"));
  std::ofstream(here.database()) << "no database";
  const Outcome bad = here.run({"doctor", "-o", "json"});
  EXPECT_EQ(bad.exit_code, 1);
  const auto status_of = [](const Outcome& outcome, const std::string& item) {
    for (const auto& row : outcome.json()) {
      if (row.at("item") == item) return row.at("status").get<std::string>();
    }
    return std::string("not there");
  };
  EXPECT_EQ(status_of(bad, "database (user)"), "fail") << bad.out;
  EXPECT_THAT(bad.out, HasSubstr("Move it away to start a new one"));
  EXPECT_EQ(status_of(good, "database (user)"), "info");
  EXPECT_EQ(status_of(good, "worker"), "ok") << good.out;
}

TEST(Doctor, SaysThatTheDriverIsTooOldAndTheCpuWorks) {
#ifndef OLD_DRIVER_FOLDER
  GTEST_SKIP() << "built without CUDA";
#else
  const Sandbox here;
  const auto with_old_driver = [&](std::vector<std::string> arguments) {
    return here.run(Call{.arguments = std::move(arguments),
                         .environment = {"LD_LIBRARY_PATH=" OLD_DRIVER_FOLDER}});
  };
  EXPECT_THAT(with_old_driver({"doctor"}).out, HasSubstr("driver version is insufficient"));
  const std::vector<std::string> on_gpu{"run", "recurrent_decode", "H=2",
                                        "D=8", "--backend",        "gpu"};
  const Outcome outcome = with_old_driver(on_gpu);
  EXPECT_EQ(outcome.exit_code, 3);
  EXPECT_THAT(outcome.err, HasSubstr("driver version is insufficient"));
  EXPECT_EQ(with_old_driver({"run", "recurrent_decode", "H=2", "D=8", "--policy", "db"}).exit_code,
            0);
#endif
}

TEST(Doctor, SaysThatABackendIsMissing) {
  const Outcome outcome = Sandbox().run({"doctor", "--device", "99", "--backend", "cpu"});
  EXPECT_EQ(outcome.exit_code, 3);
  EXPECT_THAT(outcome.out, HasSubstr("no device cpu:99"));
}

}  // namespace
}  // namespace attune::test
