// Recordings. Of any text, lines that are not a recorder's stay as they are, in their order, those
// of one problem add up to one, and adding up once more changes nothing. A file of that text takes
// another line at its end, or is refused and left as it is.
#include <algorithm>
#include <fstream>
#include <iterator>
#include <map>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include <attune/core/error.hpp>
#include <attune/tuner/recording.hpp>

#include "fuzz.hpp"
#include "recording/record_file.hpp"
#include "support/temporary_folder.hpp"

namespace {

using namespace attune;  // NOLINT(google-build-using-namespace)
using Json = nlohmann::json;

bool is_value(const Json& json) { return !json.is_structured(); }

/// The count of a line as recorders write it: JSON whose last value it is.
std::optional<std::uint64_t> hits_of(const std::string& line) {
  const std::size_t count = line.rfind("\"hits\":");
  if (count == std::string::npos || !line.ends_with("}}")) return std::nullopt;
  const std::string digits = line.substr(count + 7, line.size() - count - 9);
  if (digits.empty() || digits.find_first_not_of("0123456789") != std::string::npos) return {};
  const Json json = Json::parse(line, nullptr, false);
  if (!json.is_object() || !json.contains("op") || !json["op"].is_string()) return std::nullopt;
  if (!json.contains("recorded") || !json["recorded"].is_object()) return std::nullopt;
  for (const auto& [name, value] : json.items()) {
    if (name != "recorded" && !is_value(value)) return std::nullopt;
  }
  const Json& recorded = json["recorded"];
  if (!std::all_of(recorded.begin(), recorded.end(), is_value)) return std::nullopt;
  if (!recorded.contains("hits") || !recorded["hits"].is_number_unsigned()) return std::nullopt;
  return recorded["hits"].get<std::uint64_t>();
}

std::size_t keys_of(const Json& json) {
  std::size_t keys = json.is_object() ? json.size() : 0;
  if (json.is_structured()) {
    for (const Json& value : json) keys += keys_of(value);
  }
  return keys;
}

/// Of a key that comes twice it is not said which one counts.
bool has_a_key_twice(const std::string& line) {
  std::size_t seen = 0;
  const auto look = [&](int, Json::parse_event_t event, Json&) {
    if (event == Json::parse_event_t::key) ++seen;
    return true;
  };
  const Json json = Json::parse(line, look, false);
  return !json.is_discarded() && seen != keys_of(json);
}

struct Lines {
  std::vector<std::string> others;
  std::map<std::string, std::vector<std::uint64_t>> records;  // by what is before the count
  bool is_ambiguous = false;
};

Lines lines_of(std::string_view text) {
  Lines lines;
  while (!text.empty()) {
    const std::string line(text.substr(0, text.find('\n')));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    lines.is_ambiguous = lines.is_ambiguous || has_a_key_twice(line);
    if (const auto hits = hits_of(line)) {
      lines.records[line.substr(0, line.rfind(':'))].push_back(*hits);
    } else {
      lines.others.push_back(line);
    }
  }
  return lines;
}

std::uint64_t sum_of(const std::vector<std::uint64_t>& counts) {
  std::uint64_t sum = 0;
  for (const std::uint64_t count : counts) sum = sum + count < sum ? UINT64_MAX : sum + count;
  return sum;
}

void check_sums(std::string_view text) {
  const std::string sums = chain::sum_recorded(text);
  fuzz::expect(chain::sum_recorded(sums) == sums, "sums of sums are the same");
  const Lines before = lines_of(text);
  if (before.is_ambiguous) return;
  const Lines after = lines_of(sums);
  fuzz::expect(before.others == after.others, "every line of others");
  fuzz::expect(before.records.size() == after.records.size(), "every problem");
  for (const auto& [problem, counts] : before.records) {
    const auto found = after.records.find(problem);
    fuzz::expect(found != after.records.end() && found->second.size() == 1 &&
                     found->second[0] == sum_of(counts),
                 "one line a problem, with the sum");
  }
}

/// Whether the first line besides blank ones and comments is a JSON object with a string "op".
bool begins_as_a_recording(std::string_view text) {
  std::istringstream lines{std::string(text)};
  for (std::string line; std::getline(lines, line);) {
    const std::size_t begin = line.find_first_not_of(" \t\r");
    if (begin == std::string::npos || line[begin] == '#') continue;
    const Json json = Json::parse(line, nullptr, false);
    return json.is_object() && json.contains("op") && json["op"].is_string();
  }
  return false;
}

void check_file(std::string_view text) {
  static const test::TemporaryFolder folder;
  const std::string path = folder.file("shapes.jsonl");
  const std::string line = "{\"op\":\"a\",\"recorded\":{\"hits\":1}}\n";
  std::ofstream(path, std::ios::binary | std::ios::trunc) << text;
  std::string expected(text);
  bool is_refused = false;
  try {
    check_recording(path);
  } catch (const FileError&) {
    is_refused = true;
  }
  const bool is_recording = text.empty() || begins_as_a_recording(text);
  fuzz::expect(is_refused != is_recording || lines_of(text).is_ambiguous, "recordings alone");
  try {
    fuzz::expect(chain::append_recorded(path, line), "room for a line");
    fuzz::expect(!is_refused, "a recording that is refused is not added to");
    if (!text.empty() && text.back() != '\n') expected += '\n';
    expected += line;
  } catch (const FileError&) {
    fuzz::expect(is_refused, "what is refused later is refused at once");
  }
  std::ifstream file(path, std::ios::binary);
  fuzz::expect(std::string(std::istreambuf_iterator<char>(file), {}) == expected,
               "the file, and at most a line more");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text = fuzz::text_of(data, size);
  check_sums(text);
  check_file(text);
  return 0;
}
