#include "growing_files.hpp"

#include <fstream>
#include <stdexcept>
#include <utility>

#include <attune/cache/database_text.hpp>
#include <attune/core/error.hpp>

#include "attune_process.hpp"
#include "cache/sample_rows.hpp"

namespace attune::test::growing {
namespace {

/// A decision as a tuning here stores it, for each of as many problems as are needed.
class TunedRows {
 public:
  TunedRows() {
    const Sandbox here;
    // By valgrind too: its processor is another one.
    const Outcome tuned =
        here.run({.arguments = {"tune", "recurrent_attention", str("T=", kTokens), "H=1", "D=4",
                                "--backend", "cpu", "--budget", "10s", "--warmup", "0", "--iters",
                                "1", "--isolate", "off"},
                  .under = {"valgrind", "-q", "--tool=none"}});
    if (tuned.exit_code != 0) throw std::runtime_error(tuned.err);
    decision_ = read_database_file(here.database()).decisions.at(0);
  }

  StoredDecision with_tokens(std::int64_t tokens) const {
    StoredDecision decision{decision_.row, {}};
    std::string& problem = decision.row.key.problem;
    const std::size_t at = problem.find(" T=") + 3;
    problem.replace(at, problem.find(' ', at) - at, str(tokens));
    return decision;
  }
  const TrialRow& trial() const { return decision_.trials.at(0); }

 private:
  StoredDecision decision_;
};

const TunedRows& tuned_here() {
  static const TunedRows rows;
  return rows;
}

/// A tensor file that is its header alone.
void write_header(const std::string& path, std::string header) {
  header.resize((header.size() + 7) / 8 * 8, ' ');
  std::ofstream file(path, std::ios::binary);
  const std::uint64_t length = header.size();
  file.write(reinterpret_cast<const char*>(&length), sizeof length);
  file << header;
}

}  // namespace

void tuned_rows(const std::string& path, std::int64_t first, std::int64_t n) {
  DatabaseContent content;
  for (std::int64_t i = first; i < first + n; ++i)
    content.decisions.push_back(tuned_here().with_tokens(kTokens + i));
  write_database_file(path, content);
}

void trials(const std::string& path, std::int64_t first, std::int64_t n) {
  DatabaseContent content;
  content.decisions.push_back(tuned_here().with_tokens(kTokens));
  for (std::int64_t i = first; i < first + n; ++i) {
    content.decisions[0].trials.push_back(tuned_here().trial());
    content.decisions[0].trials.back().config = str("tile_v=", i);
  }
  write_database_file(path, content);
}

void decisions(const std::string& path, std::int64_t first, std::int64_t n) {
  DatabaseContent content;
  for (std::int64_t i = first; i < first + n; ++i) content.decisions.push_back({sample_row(i), {}});
  write_database_file(path, content);
}

void pins(const std::string& path, std::int64_t first, std::int64_t n) {
  DatabaseContent content;
  for (std::int64_t i = first; i < first + n; ++i) content.pins.push_back(sample_pin(i));
  write_database_file(path, content);
}

void quarantined(const std::string& path, std::int64_t first, std::int64_t n) {
  DatabaseContent content;
  for (std::int64_t i = first; i < first + n; ++i)
    content.quarantine.push_back(sample_quarantine(i));
  write_database_file(path, content);
}

void empty_tensors(const std::string& path, std::int64_t first, std::int64_t n) {
  std::string header = "{";
  for (std::int64_t i = first; i < first + n; ++i) {
    header += str(i == first ? "" : ",", "\"t", i,
                  R"(":{"dtype":"F32","shape":[0],"data_offsets":[0,0]})");
  }
  write_header(path, header + "}");
}

void file_attributes(const std::string& path, std::int64_t first, std::int64_t n) {
  std::string header = R"({"__metadata__":{)";
  for (std::int64_t i = first; i < first + n; ++i)
    header += str(i == first ? "" : ",", "\"a", i, "\":\"1\"");
  write_header(path, header + "}}");
}

Maker elements(const std::string& before, Text element, const std::string& after) {
  return [=](const std::string& path, std::int64_t first, std::int64_t n) {
    std::ofstream file(path);
    file << before;
    for (std::int64_t i = 0; i < n; ++i) file << (i == 0 ? "" : ",") << element(first + i);
    file << after << '\n';
  };
}

Maker lines(Text line, const std::string& last) {
  return [=](const std::string& path, std::int64_t first, std::int64_t n) {
    std::ofstream file(path);
    for (std::int64_t i = 0; i < n; ++i) file << line(first + i) << '\n';
    file << last << '\n';
  };
}

std::string recorded(std::int64_t i) {
  return str(R"({"op":"recurrent_attention","T":)", 1 + i,
             R"(,"H":1,"D":4,"recorded":{"hits":2,"device_class":"another","platform":"auto"}})");
}

}  // namespace attune::test::growing
