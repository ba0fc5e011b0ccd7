// `attune stats`: the counters of running programs, from the files that ATTUNE_STATS makes them
// write.
#include <algorithm>
#include <chrono>
#include <filesystem>
#include <map>
#include <optional>

#include <attune/core/environment.hpp>
#include <attune/core/input_file.hpp>

#include "output/text.hpp"
#include "program/duration.hpp"
#include "program/verb.hpp"

namespace attune::cli {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kEnding = ".prom";
constexpr std::uint64_t kMostBytes = std::uint64_t{1} << 20;

/// One line of a file: `attune_choices_total{program="serve",pid="1",tier="pin"} 3`.
struct Sample {
  std::string name;
  std::map<std::string, std::string, std::less<>> labels;
  double value = 0;

  /// Takes a label away.
  std::string take(std::string_view label) {
    const auto found = labels.find(label);
    if (found == labels.end()) return "";
    std::string value_of_it = std::move(found->second);
    labels.erase(found);
    return value_of_it;
  }
};

/// A label's value, from behind its opening quote to behind the closing one. Nothing when it does
/// not end.
std::optional<std::string> take_quoted(std::string_view& rest) {
  std::string value;
  for (std::size_t i = 0; i < rest.size(); ++i) {
    if (rest[i] == '"') {
      rest.remove_prefix(i + 1);
      return value;
    }
    if (rest[i] == '\\' && i + 1 < rest.size()) {
      ++i;
      value += rest[i] == 'n' ? '\n' : rest[i];
    } else {
      value += rest[i];
    }
  }
  return std::nullopt;
}

std::optional<Sample> parse_sample(std::string_view line) {
  Sample sample;
  const std::size_t name = line.find_first_of("{ ");
  if (name == std::string_view::npos) return std::nullopt;
  sample.name = line.substr(0, name);
  std::string_view rest = line.substr(name);
  if (rest.front() == '{') {
    rest.remove_prefix(1);
    while (!rest.empty() && rest.front() != '}') {
      const std::size_t equals = rest.find("=\"");
      if (equals == std::string_view::npos) return std::nullopt;
      std::string label(rest.substr(0, equals));
      rest.remove_prefix(equals + 2);
      std::optional<std::string> value = take_quoted(rest);
      if (!value) return std::nullopt;
      sample.labels.insert_or_assign(std::move(label), *std::move(value));
      if (rest.starts_with(',')) rest.remove_prefix(1);
    }
    if (rest.empty()) return std::nullopt;
    rest.remove_prefix(1);
  }
  while (rest.starts_with(' ')) rest.remove_prefix(1);
  const std::optional<double> value = parse_real(std::string(rest));
  if (!value) return std::nullopt;
  sample.value = *value;
  return sample;
}

std::vector<Sample> read_samples(const std::string& path) {
  std::string text;
  try {
    text = InputFile(path).text(kMostBytes);
  } catch (const FileError& error) {
    throw UsageError(error.what());
  }
  std::vector<Sample> samples;
  bool has_ended = false;
  for (std::string_view rest = text; !rest.empty();) {
    const std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(rest.size(), line.size() + 1));
    if (line == "# EOF") has_ended = true;
    if (line.empty() || line.front() == '#') continue;
    std::optional<Sample> sample = parse_sample(line);
    if (!sample || !sample->name.starts_with("attune_")) {
      throw UsageError(str(path, ": is no file of attune's counters"));
    }
    samples.push_back(*std::move(sample));
  }
  if (!has_ended) throw UsageError(str(path, ": is no file of attune's counters, or half of one"));
  return samples;
}

/// Where nothing can be said of a path, reading it says why.
bool is_folder(const std::string& path) {
  std::error_code error;
  return fs::is_directory(path, error);
}

bool is_there(const std::string& path) {
  std::error_code error;
  return fs::exists(path, error);
}

std::vector<std::string> files_in(const std::string& folder, std::string_view ending) {
  std::vector<std::string> files;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    if (name.starts_with("attune-") && name.ends_with(ending)) files.push_back(entry->path());
  }
  std::sort(files.begin(), files.end());
  return files;
}

/// What a running process was started with as ATTUNE_STATS, as a path that is right here.
std::string stats_path_of_process(const std::string& pid) {
  const std::string folder = str("/proc/", pid);
  if (!is_there(folder)) throw UsageError(str("there is no process ", pid));
  std::string environment;
  try {
    environment = InputFile(folder + "/environ").text(kMostBytes);
  } catch (const FileError& error) {
    throw UsageError(str("process ", pid, ": its environment cannot be read: ", error.what(),
                         "; name the file that it writes"));
  }
  constexpr std::string_view kVariable = "ATTUNE_STATS=";
  for (std::string_view rest = environment; !rest.empty();) {
    const std::string_view entry = rest.substr(0, rest.find('\0'));
    rest.remove_prefix(std::min(rest.size(), entry.size() + 1));
    if (!entry.starts_with(kVariable) || entry.size() == kVariable.size()) continue;
    std::error_code error;
    const fs::path started_in = fs::read_symlink(folder + "/cwd", error);
    return (started_in / entry.substr(kVariable.size())).string();
  }
  throw UsageError(
      str("process ", pid, " writes no counters: start it with ATTUNE_STATS=FILE or FOLDER"));
}

std::vector<std::string> files_of(const std::string& word) {
  if (is_folder(word)) return files_in(word, kEnding);
  const bool is_pid =
      !word.empty() && word.find_first_not_of("0123456789") == std::string::npos && !is_there(word);
  if (!is_pid) return {word};
  const std::string path = stats_path_of_process(word);
  if (!is_folder(path)) return {path};
  std::vector<std::string> files = files_in(path, str('-', word, kEnding));
  if (files.empty()) {
    throw UsageError(str("process ", word, " has written no counters in ", path,
                         ": it has made no context yet, or another process was meant"));
  }
  return files;
}

std::string labels_text(const Sample& sample) {
  std::vector<std::string> parts;
  for (const auto& [name, value] : sample.labels) parts.push_back(str(name, '=', value));
  return join(parts, " ");
}

ExitCode run(const Invocation& call) {
  std::vector<std::string> words = call.words;
  if (words.empty()) {
    const std::optional<std::string> own = read_environment("ATTUNE_STATS");
    if (!own) throw UsageError("expected a file, a folder or a process; ATTUNE_STATS is not set");
    words.push_back(*own);
  }
  Table table({"program", "pid", "counter", "of", "value", "age"});
  for (const std::string& word : words) {
    for (const std::string& path : files_of(word)) {
      std::vector<Sample> samples = read_samples(path);
      std::error_code error;
      const auto written = fs::last_write_time(path, error);
      const auto age = fs::file_time_type::clock::now() - written;
      const double seconds = std::chrono::duration<double>(age).count();
      for (Sample& sample : samples) {
        const std::string program = sample.take("program");
        const std::string pid = sample.take("pid");
        table.add({program, pid, sample.name,
                   sample.labels.empty() ? Cell() : Cell(labels_text(sample)), sample.value,
                   error ? Cell() : Cell(elapsed_text(std::max(seconds, 0.0)))});
      }
    }
  }
  const bool none = table.empty();
  if (none) call.note("no process has written counters there");
  call.print(std::move(table));
  return none ? ExitCode::kNo : ExitCode::kOk;
}

}  // namespace

Verb stats_verb() {
  return {
      .name = "stats",
      .summary = "the counters of running programs: choices, tunings, faults, databases",
      .usage = {"stats [FILE|FOLDER|PID...]"},
      .examples = {"stats 4711", "stats /run/attune",
                   "stats /var/lib/node_exporter/attune.prom -o json"},
      .details =
          "A program that runs with ATTUNE_STATS=FILE writes its counters there every 5 s, as "
          "OpenMetrics text that node_exporter's textfile collector reads, and a last time when it "
          "ends. With ATTUNE_STATS=FOLDER each process writes attune-HOST-PID.prom in it, and "
          "removes it when it ends: what several processes need, and a collector's folder.\n"
          "PID is a process that was started with ATTUNE_STATS. Without an argument: what "
          "ATTUNE_STATS names here. age says when the file was written; of a program that runs, "
          "that is less than a few seconds ago. Exit status 1 when a folder has no such file.",
      .options = {},
      .run = run};
}

}  // namespace attune::cli
