#include "problems/spec.hpp"

#include <algorithm>
#include <cstdint>

#include "program/exit_code.hpp"

namespace attune::cli {
namespace {

constexpr std::string_view kBackwardSuffix = ".backward";

[[noreturn]] void refuse_range(std::string_view name, std::string_view text, std::string_view why) {
  throw UsageError(
      str(name, '=', text, ": ", why, "; a range is [first:last:*n] or [first:last:+n]"));
}

void check_count(std::string_view name, std::size_t count) {
  if (count > kMaxProblems) throw UsageError(str(name, ": more than ", kMaxProblems, " values"));
}

/// "[512:4096:*2]" written out.
std::vector<std::string> expand_range(std::string_view name, std::string_view text) {
  const std::string_view inner = text.substr(1, text.size() - 2);
  const std::size_t first_colon = inner.find(':');
  const std::size_t last_colon = inner.rfind(':');
  if (first_colon == std::string_view::npos || first_colon == last_colon ||
      last_colon + 2 >= inner.size()) {
    refuse_range(name, text, "expected two colons and a step");
  }
  std::int64_t first = 0;
  std::int64_t last = 0;
  std::int64_t step = 0;
  const char kind = inner[last_colon + 1];
  if ((kind != '*' && kind != '+') || !parse_integer(inner.substr(0, first_colon), first) ||
      !parse_integer(inner.substr(first_colon + 1, last_colon - first_colon - 1), last) ||
      !parse_integer(inner.substr(last_colon + 2), step)) {
    refuse_range(name, text, "expected whole numbers");
  }
  if (first < 0 || last < first) refuse_range(name, text, "expected 0 <= first <= last");
  if (step < (kind == '*' ? 2 : 1)) refuse_range(name, text, "the step never reaches the end");
  if (kind == '*' && first == 0)
    refuse_range(name, text, "0 stays 0 however often it is multiplied");
  std::vector<std::string> values;
  for (std::int64_t value = first;;) {
    values.push_back(std::to_string(value));
    check_count(name, values.size());
    const bool more = kind == '*' ? value <= last / step : value <= last - step;
    if (!more) return values;
    value = kind == '*' ? value * step : value + step;
  }
}

/// The values of one axis: "1,4,[512:4096:*2]".
std::vector<std::string> parse_values(std::string_view name, std::string_view text) {
  std::vector<std::string> values;
  for (std::string_view rest = text;;) {
    const bool range = rest.starts_with('[');
    const std::size_t close = range ? rest.find(']') : 0;
    if (close == std::string_view::npos) refuse_range(name, text, "expected ']'");
    const std::size_t end = std::min(rest.find(',', close), rest.size());
    const std::string_view value = rest.substr(0, end);
    if (value.empty()) throw UsageError(str(name, '=', text, ": an empty value"));
    if (!range) {
      values.emplace_back(value);
    } else if (value.back() != ']') {
      refuse_range(name, value, "text after ']'");
    } else {
      for (std::string& expanded : expand_range(name, value)) values.push_back(std::move(expanded));
    }
    check_count(name, values.size());
    if (end == rest.size()) return values;
    rest.remove_prefix(end + 1);
  }
}

bool has_control(std::string_view text) {
  return std::any_of(text.begin(), text.end(),
                     [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; });
}

}  // namespace

void add_axis(Spec& spec, std::string_view name, std::string_view values) {
  if (name.empty() || values.empty())
    throw UsageError(str("'", name, '=', values, "': expected name=value"));
  if (has_control(name) || has_control(values))
    throw UsageError(str("field '", name, "' has a control character"));
  for (const SpecAxis& axis : spec.axes) {
    if (axis.name == name)
      throw UsageError(str("field '", name, "' is given twice; list its values: ", name, "=a,b"));
  }
  if (spec.axes.size() == kMaxAxes) {
    throw UsageError(str("field '", name, "': more than ", kMaxAxes, " fields"));
  }
  spec.axes.push_back({std::string(name), parse_values(name, values)});
}

Spec parse_spec(std::span<const std::string> words) {
  Spec spec;
  for (const std::string& word : words) {
    const std::size_t equals = word.find('=');
    if (equals != std::string::npos) {
      add_axis(spec, std::string_view(word).substr(0, equals),
               std::string_view(word).substr(equals + 1));
    } else if (spec.op.empty() && spec.axes.empty() && !word.empty()) {
      spec.op = word;
    } else {
      throw UsageError(str("'", word, "': expected name=value"));
    }
  }
  return spec;
}

Spec parse_spec_text(std::string_view line) {
  std::vector<std::string> words;
  while (!line.empty()) {
    const std::size_t end = std::min(line.find_first_of(" \t\r"), line.size());
    if (end > 0) words.emplace_back(line.substr(0, end));
    line.remove_prefix(std::min(end + 1, line.size()));
  }
  return parse_spec(words);
}

std::string to_text(const Spec& spec) {
  std::string text = spec.op;
  for (const SpecAxis& axis : spec.axes) {
    if (!text.empty()) text += ' ';
    text += axis.name + '=';
    for (std::size_t i = 0; i < axis.values.size(); ++i)
      text += str(i == 0 ? "" : ",", axis.values[i]);
  }
  return text;
}

namespace {

/// The op that a pass of `op` is.
std::string op_of_pass(std::string op, std::string_view pass) {
  const bool is_backward = op.ends_with(kBackwardSuffix);
  if (pass == "fwd" && !is_backward) return op;
  if (pass == "bwd") return is_backward ? op : op + std::string(kBackwardSuffix);
  throw UsageError(str("pass=", pass,
                       is_backward ? " of a backward op: leave it out" : ": expected fwd or bwd"));
}

}  // namespace

std::size_t problem_count(const Spec& spec) {
  std::size_t count = 1;
  for (const SpecAxis& axis : spec.axes) {
    count *= axis.values.size();  // at most kMaxProblems^2 before the check
    if (count > kMaxProblems) {
      throw UsageError(str("more than ", kMaxProblems, " problems at field '", axis.name, "'"));
    }
  }
  return count;
}

std::vector<NamedProblem> expand(const Spec& spec) {
  const std::size_t count = problem_count(spec);
  std::vector<NamedProblem> problems;
  for (std::size_t index = 0; index < count; ++index) {
    NamedProblem problem{spec.op, {}};
    std::size_t rest = index;
    std::size_t below = count;
    for (const SpecAxis& axis : spec.axes) {
      below /= axis.values.size();
      const std::string& value = axis.values[rest / below];
      rest %= below;
      if (axis.name == "pass") {
        problem.op = op_of_pass(problem.op, value);
      } else {
        problem.params.push_back({axis.name, value});
      }
    }
    problems.push_back(std::move(problem));
  }
  return problems;
}

}  // namespace attune::cli
