// Specs from outside the command line: JSON objects, files, standard input.
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <iostream>
#include <map>
#include <tuple>

#include <attune_json/strict_json.hpp>

#include <attune/core/input_file.hpp>
#include <attune/core/text_lines.hpp>

#include "problems/spec.hpp"
#include "program/exit_code.hpp"

namespace attune::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kExpectedValue =
    "expected a whole number, a string, true, false, or a list of them";

std::string scalar_text(std::string_view name, const Json& value) {
  if (value.is_string()) return value.get<std::string>();
  if (value.is_boolean()) return value.get<bool>() ? "yes" : "no";
  if (value.is_number_unsigned()) return std::to_string(value.get<std::uint64_t>());
  if (value.is_number_integer()) return std::to_string(value.get<std::int64_t>());
  throw UsageError(str("field '", name, "': ", kExpectedValue));
}

std::string axis_text(std::string_view name, const Json& value) {
  if (!value.is_array()) return scalar_text(name, value);
  std::string text;
  for (const Json& element : value)
    text += str(text.empty() ? "" : ",", scalar_text(name, element));
  return text;
}

/// The names of fields are kept in their order, which is that of the axes.
Json parse_object(std::string_view line) {
  constexpr std::size_t kMaxDepth = 2;  // the spec, and a list or what was recorded
  try {
    Json object = parse_strict_json<Json>(line, kMaxDepth);
    if (object.is_object()) return object;
  } catch (const JsonRefused& refused) {
    switch (refused.why) {
      case JsonRefused::Why::kNotJson:
        throw UsageError(str("not JSON: ", refused.what()));
      case JsonRefused::Why::kNameTwice:
        throw UsageError(str("field '", refused.name, "' is given twice"));
      case JsonRefused::Why::kTooDeep:
        if (refused.name.empty()) break;
        throw UsageError(str("field '", refused.name,
                             "': ", refused.name == "recorded" ? refused.what() : kExpectedValue));
    }
  }
  throw UsageError("expected a JSON object");
}

RecordedCalls parse_recorded(const Json& value) {
  if (!value.is_object()) throw UsageError("field 'recorded': expected an object");
  RecordedCalls recorded;
  for (const auto& [name, detail] : value.items()) {
    if (name == "hits") {
      if (!detail.is_number_unsigned()) throw UsageError("recorded hits: expected a whole number");
      constexpr std::uint64_t kMost = RecordedCalls::kMostHits;
      recorded.hits = static_cast<std::int64_t>(std::min(detail.get<std::uint64_t>(), kMost));
    } else if (name == "device_class" || name == "platform") {
      if (!detail.is_string()) throw UsageError(str("recorded ", name, ": expected a string"));
      (name == "platform" ? recorded.platform : recorded.device_class) = detail.get<std::string>();
    }
  }
  return recorded;
}

Spec parse_line(std::string_view line) {
  return line.front() == '{' ? parse_spec_json(line) : parse_spec_text(line);
}

/// The specs of files and standard input.
class SourceReader {
 public:
  /// "@FILE".
  void read_file(const std::string& word) {
    const std::string path = word.substr(1);
    try {
      InputFile file(path);
      std::istream input(&file);
      read_lines(input, path);
    } catch (const FileError& error) {
      std::error_code ignored;
      const bool is_stream = std::filesystem::is_other(path, ignored);
      throw UsageError(str("'", word, "'", error.what() + path.size(),
                           is_stream ? "; '-' reads standard input" : ""));
    }
  }

  void read_lines(std::istream& input, std::string_view source) {
    constexpr std::size_t kMaxLineBytes = std::size_t{256} << 10;
    constexpr std::size_t kMaxBytes = std::size_t{64} << 20;
    TextLines lines(input, kMaxLineBytes, kMaxBytes);
    try {
      for (std::string line; lines.next(line);) {
        const std::size_t begin = line.find_first_not_of(" \t");
        if (begin == std::string::npos || line[begin] == '#') continue;
        Spec spec = parse_line(std::string_view(line).substr(begin));
        spec.source = str(source, ':', lines.number());
        add(std::move(spec));
      }
    } catch (const UsageError& error) {
      throw UsageError(str(source, ':', lines.number(), ": ", error.what()));
    } catch (const InvalidArgument& error) {
      throw UsageError(str(source, ':', lines.number(), ": ", error.what()));
    }
  }

  std::vector<Spec> take() { return std::move(specs_); }

 private:
  /// A recording has many lines of one problem, whose hits add up.
  void add(Spec spec) {
    RecordedCalls& recorded = spec.recorded;
    const auto [known, is_new] = places_.try_emplace(
        {to_text(spec), recorded.device_class, recorded.platform}, specs_.size());
    if (!is_new) {
      std::int64_t& hits = specs_[known->second].recorded.hits;
      hits = std::min(hits + recorded.hits, RecordedCalls::kMostHits);
      return;
    }
    problems_ += problem_count(spec);
    if (problems_ > kMaxProblems) throw UsageError(str("more than ", kMaxProblems, " problems"));
    specs_.push_back(std::move(spec));
  }

  std::vector<Spec> specs_;
  std::map<std::tuple<std::string, std::string, std::string>, std::size_t> places_;
  std::size_t problems_ = 0;  // that they mean
};

}  // namespace

Spec parse_spec_json(std::string_view line) {
  Spec spec;
  for (const Json object = parse_object(line); const auto& [name, value] : object.items()) {
    if (name == "op") {
      if (!value.is_string()) throw UsageError("field 'op': expected a string");
      spec.op = value.get<std::string>();
    } else if (name == "recorded") {
      spec.recorded = parse_recorded(value);
    } else {
      add_axis(spec, name, axis_text(name, value));
    }
  }
  return spec;
}

std::vector<Spec> read_specs(std::span<const std::string> words) {
  SourceReader reader;
  std::vector<std::string> plain;
  bool from_files = false;
  for (const std::string& word : words) {
    if (word == "-") {
      from_files = true;
      reader.read_lines(std::cin, "standard input");
      // To a stream over stdio an error is an end, as where a folder is the input.
      if (std::ferror(stdin) != 0) throw UsageError("standard input: cannot be read");
    } else if (word.starts_with('@')) {
      from_files = true;
      reader.read_file(word);
    } else {
      plain.push_back(word);
    }
  }
  const Spec line = parse_spec(plain);
  std::vector<Spec> specs = reader.take();
  for (Spec& spec : specs) {
    if (spec.op.empty()) spec.op = line.op;
  }
  if (!line.axes.empty() || !from_files) specs.insert(specs.begin(), line);
  return specs;
}

}  // namespace attune::cli
