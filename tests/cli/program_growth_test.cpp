// What twice as many rows, tensors, specs or pins cost: twice as much, give or take a logarithm.
// Instructions are counted, by valgrind(1), and not time.
//
// What is done for each costs a n, and what is done for each pair of them b n^2. A part of b n / a
// = 1/7 makes the factor 2.25 at n, and 3 at 7 n: small sizes say what large ones will take.
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iostream>
#include <optional>
#include <regex>
#include <sstream>

#include <gtest/gtest.h>

#include <attune/core/error.hpp>

#include "attune_process.hpp"
#include "growing_files.hpp"

namespace attune::test {
namespace {

using Words = std::vector<std::string>;

/// A file with n of something, and the command that is given it as FILE; OTHER is a second such
/// file, with n others.
struct Growing {
  std::string name;  // "diff of pins"
  std::int64_t n;
  std::string file;
  growing::Maker make;
  Words command;
  int exit_code = 0;

  friend std::ostream& operator<<(std::ostream& out, const Growing& growing) {
    return out << growing.name;
  }
};

void add_parsers(std::vector<Growing>& all) {
  constexpr int kRefused = 2;
  const auto add = [&](const std::string& name, std::int64_t n, const std::string& file,
                       growing::Maker make, Words command, int exit_code) {
    all.push_back({name, n, file, std::move(make), std::move(command), exit_code});
  };
  const Words check{"check", "FILE"}, dry{"tune", "@FILE", "--dry-run"};
  add("tensors of a file", 2000, "a.safetensors", growing::empty_tensors, check, kRefused);
  add("attributes of a file", 2000, "a.safetensors", growing::file_attributes, check, kRefused);

  const auto number = [](std::int64_t i) { return str(1 + i); };
  const auto list = [](std::int64_t) { return std::string("[]"); };
  const auto field = [](std::int64_t i) { return str("\"f", i, "\":[]"); };
  const std::string object = R"({"op":"recurrent_attention")";
  add("values of a JSON spec", 4000, "a.jsonl",
      growing::elements(object + R"(,"H":1,"T":[)", number, R"(],"T":1})"), dry, kRefused);
  add("lists in a JSON spec", 8000, "a.jsonl", growing::elements(object + R"(,"T":[)", list, "]}"),
      dry, kRefused);
  add("fields of a JSON spec", 4000, "a.jsonl", growing::elements(object + ",", field, "}"), dry,
      kRefused);
  add("values of a spec", 4000, "a.txt",
      growing::elements("recurrent_attention T=", number, " T=1"), dry, kRefused);

  const auto problem = [](std::int64_t i) { return str("recurrent_attention D=4 T=", 1000 + i); };
  add("lines of a spec file", 300, "a.txt", growing::lines(problem, "nothing"), dry, kRefused);
  add("problems of a dry run", 30, "a.txt", growing::lines(problem), dry, 0);
  add("lines of a recording", 500, "a.jsonl", growing::lines(growing::recorded), dry, 0);
  add("lines of a recording that goes on", 500, "a.jsonl", growing::lines(growing::recorded),
      {"record", "--output", "FILE", "--", "true"}, 0);
}

void add_databases(std::vector<Growing>& all) {
  constexpr int kNo = 1;
  const auto add = [&](const std::string& name, std::int64_t n, const auto& make, Words command,
                       int exit_code = 0, const std::string& file = "a.db") {
    all.push_back({name, n, file, make, std::move(command), exit_code});
  };
  const auto add_each = [&](const std::string& what, std::int64_t n, const auto& make) {
    add("diff of " + what, n, make, {"db", "diff", "FILE", "OTHER"}, kNo);
    add("merge of " + what, n, make, {"db", "merge", "FILE", "OTHER", "--output", "out.db"});
    add("import of " + what, n, make, {"db", "import", "FILE", "--db", "OTHER"});
    add("gc of " + what, n, make, {"db", "gc", "--older-than", "1h", "--trials", "--db", "FILE"});
    add("explain among " + what, n, make,
        {"explain", "recurrent_attention", str("T=", growing::kTokens), "H=1", "D=4", "--db",
         "FILE"});
  };
  constexpr std::int64_t kMany = 600;
  add_each("decisions", kMany, growing::decisions);
  add_each("pins", kMany, growing::pins);
  add_each("quarantined candidates", kMany, growing::quarantined);
  add_each("trials", kMany, growing::trials);
  for (const char* text : {"a.jsonl", "a.csv"}) {
    const Words import{"db", "import", "FILE", "--db", "mine.db"};
    add(str("import of decisions of ", text), kMany, growing::decisions, import, 0, text);
    add(str("import of trials of ", text), kMany, growing::trials, import, 0, text);
  }
  add("export of decisions", kMany, growing::decisions,
      {"db", "export", "FILE", "--output", "out.db"});
  add("list of pins", kMany, growing::pins, {"db", "pin", "--db", "FILE"});
  constexpr std::int64_t kFew = 100;  // a problem's text is taken apart for each
  const Words problem{
      "recurrent_attention", str("T=", growing::kTokens), "H=1", "D=4", "--db", "FILE"};
  Words show{"db", "show"}, explain{"explain"};
  show.insert(show.end(), problem.begin(), problem.end());
  explain.insert(explain.end(), problem.begin(), problem.end());
  add("ls of tuned problems", kFew, growing::tuned_rows, {"db", "ls", "--db", "FILE"});
  add("stats of tuned problems", kFew, growing::tuned_rows, {"db", "stats", "FILE"});
  add("verify of tuned problems", kFew, growing::tuned_rows, {"db", "verify", "FILE"});
  add("gc of tuned problems", kFew, growing::tuned_rows,
      {"db", "gc", "--older-than", "1h", "--db", "FILE"});
  add("explain among tuned problems", kFew, growing::tuned_rows, explain);
  add("report of tuned problems", kFew, growing::tuned_rows, {"report", "FILE"});
  add("show of trials", kMany, growing::trials, show);
}

std::vector<Growing> everything() {
  std::vector<Growing> all;
  add_parsers(all);
  add_databases(all);
  return all;
}

bool has_valgrind() {
  return std::system("valgrind --version > /dev/null 2>&1") == 0;  // NOLINT(cert-env33-c)
}

/// The instructions that a command takes for n; nothing where there is no valgrind that works.
std::optional<double> instructions(const Growing& growing, std::int64_t n) {
  const Sandbox here;
  std::filesystem::create_directory(here.file("other"));
  const std::string file = here.file(growing.file);
  const std::string other = here.file("other/" + growing.file);
  growing.make(file, 0, n);
  growing.make(other, n, n);
  Call call;
  call.under = {"valgrind",
                "--tool=cachegrind",
                "--cache-sim=no",
                "--branch-sim=no",
                "--cachegrind-out-file=/dev/null",
                "--log-file=" + here.file("count")};
  for (std::string word : growing.command) {
    if (word == "FILE") word = file;
    if (word == "@FILE") word = '@' + file;
    if (word == "OTHER") word = other;
    if (word.ends_with(".db") && word[0] != '/') word = here.file(word);
    call.arguments.push_back(word);
  }
  const Outcome outcome = here.run(call);
  std::ifstream log(here.file("count"));
  std::ostringstream text;
  text << log.rdbuf();
  std::smatch found;
  const std::string count = text.str();
  if (!std::regex_search(count, found, std::regex("I +refs: +([0-9,]+)"))) return {};
  EXPECT_TRUE(n == 0 || outcome.exit_code == growing.exit_code)
      << outcome.exit_code << ": " << outcome.err << outcome.out.substr(0, 1000);
  std::string digits = found[1];
  std::erase(digits, ',');
  return std::stod(digits);
}

class Growth : public testing::TestWithParam<Growing> {};

TEST_P(Growth, IsTwofoldForTwiceAsMany) {
  constexpr double kMost = 2.25;
  const std::int64_t n = GetParam().n;
  const std::optional<double> none = has_valgrind() ? instructions(GetParam(), 0) : std::nullopt;
  if (!none) GTEST_SKIP() << "no valgrind here that counts instructions";
  const double once = *instructions(GetParam(), n) - *none;
  const double twice = *instructions(GetParam(), 2 * n) - *none;
  EXPECT_GT(once, 0);
  EXPECT_LT(twice, kMost * once) << n << " take " << once / 1e6 << ", twice as many " << twice / 1e6
                                 << " million instructions";
  std::cout << n << ": " << once / 1e6 << ", " << 2 * n << ": " << twice / 1e6
            << " million instructions, factor " << twice / once << '\n';
}

std::string name_of(const testing::TestParamInfo<Growing>& info) {
  std::string name = info.param.name;
  for (char& c : name) c = std::isalnum(static_cast<unsigned char>(c)) ? c : '_';
  return name;
}
INSTANTIATE_TEST_SUITE_P(Of, Growth, testing::ValuesIn(everything()), name_of);

}  // namespace
}  // namespace attune::test
