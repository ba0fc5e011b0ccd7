// SPEC: how problems are named on the command line, in JSONL files and in logs.
//
//   spec   := [OP] axis...                      words separated by spaces
//   axis   := NAME '=' value (',' value)*       the axes of a spec multiply
//   value  := TEXT | '[' first ':' last ':*' n ']' | '[' first ':' last ':+' n ']'
//
// "B=1,4 T=[512:4096:*2] dtype=bf16" names eight problems. Which names there are is the op's
// matter; one is the grammar's: pass=fwd|bwd, where bwd means the op "OP.backward". The order of
// problems is that of the text, the last axis varying fastest.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <attune/core/params.hpp>

namespace attune::cli {

/// More problems than this in one command are a slip.
inline constexpr std::size_t kMaxProblems = 10'000;

/// Ten times the fields that an op may have.
inline constexpr std::size_t kMaxAxes = 256;

struct SpecAxis {
  std::string name;
  std::vector<std::string> values;  // ranges written out
  friend bool operator==(const SpecAxis&, const SpecAxis&) = default;
};

/// What ATTUNE_RECORD noted of a problem's calls: {"op":...,"recorded":{"hits":3,...}}.
struct RecordedCalls {
  static constexpr std::int64_t kMostHits = std::int64_t{1} << 53;  // sums end there, too
  std::int64_t hits = 0;
  std::string device_class = {};  // that they ran on; "": not said
  std::string platform = {};      // that they asked for; "": not said
  friend bool operator==(const RecordedCalls&, const RecordedCalls&) = default;
};

struct Spec {
  std::string op;  // "": not said
  std::vector<SpecAxis> axes;
  RecordedCalls recorded = {};
  /// "shapes.jsonl:3", or "" of the command line. It says nothing of what is meant.
  std::string source = {};
  friend bool operator==(const Spec& a, const Spec& b) {
    return a.op == b.op && a.axes == b.axes && a.recorded == b.recorded;
  }
};

/// One problem, not yet read by its op.
struct NamedProblem {
  std::string op;
  Params params;
  friend bool operator==(const NamedProblem&, const NamedProblem&) = default;
};

// All of these throw UsageError, naming the field.

/// Adds name=values to a spec; `values` is a list as above.
void add_axis(Spec& spec, std::string_view name, std::string_view values);

/// A word without '=' is the op, and stands first.
Spec parse_spec(std::span<const std::string> words);
Spec parse_spec_text(std::string_view line);

/// {"op": "recurrent_attention", "T": [512, 1024], "dtype": "bf16", "h0": true}; strings may hold
/// lists and ranges. "recorded" is what ATTUNE_RECORD adds, an object.
Spec parse_spec_json(std::string_view line);

/// The reverse of parse_spec_text.
std::string to_text(const Spec& spec);

/// How many problems it means, at most kMaxProblems.
std::size_t problem_count(const Spec& spec);

/// The cross product.
std::vector<NamedProblem> expand(const Spec& spec);

/// The specs that words of the command line mean: all plain words form one; "@FILE" and "-" stand
/// for one a line, as text or JSON, of the command line's op where they say none. Empty lines and
/// lines that begin with '#' are skipped. FILE is a regular file; a line has at most 256 KiB, a
/// source 64 MiB, and all sources mean at most kMaxProblems problems. Messages name file and line.
std::vector<Spec> read_specs(std::span<const std::string> words);

}  // namespace attune::cli
