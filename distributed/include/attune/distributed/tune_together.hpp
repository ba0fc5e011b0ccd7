// The ranks of a job share the tuning of the problems that they are about to run, and end with the
// same choices.
//
//   const auto report = tune_together(exchange, context, device, wanted);
//   if (!report.agreement.equal() || !report.missing.empty()) ...;
//
// Each rank tunes its part of the list (partition.hpp); then all rows are exchanged and merged by
// attune's order of rows, which is a maximum: no rank leads, and every rank ends with one table.
#pragma once

#include <chrono>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <attune/distributed/agreement.hpp>
#include <attune/tuner/tuner.hpp>

namespace attune::distributed {

/// A problem that the job is going to run: AnyProblem::of<Op>(problem).
struct WantedProblem {
  AnyProblem problem;
  std::string platform = "auto";  // that its calls ask for
};

struct TuningTime {
  std::chrono::milliseconds problem{2000};   // most for each
  std::chrono::milliseconds in_all{60'000};  // most for a rank's part, from the call on
};

struct TuneTogetherReport {
  std::size_t tuned = 0;  // by this rank
  std::size_t known = 0;  // of this rank's part: rows were there before
  /// By rank, what kept it from tuning its part; "" where nothing did.
  std::vector<std::string> failures;
  /// Problems of `wanted` that no rank has a row for: they take the heuristic, on every rank.
  std::vector<std::string> missing;
  Agreement agreement;
};

/// Tunes, merges and freezes the context. Afterwards its choices follow from the merged rows alone,
/// not from the files that they came from; what this rank tuned is stored in its user's database
/// too, where there is one.
///
/// Communicates exactly twice, whatever happens between: one all_gather of a size, one of texts in
/// host memory. A rank that fails sends why, with the rows that it has; a rank whose time is over
/// leaves what it has not begun, and one whose candidate does not return keeps the others waiting
/// for as long as the exchange lets them, as candidates run in this process. Ranks with different
/// lists or databases end with the same table all the same. Ranks of another device class, with
/// other kernels or another policy, have a digest of their own in the agreement.
///
/// `settings`: how candidates are timed; its budgets and stop are replaced.
/// Throws InvalidArgument for a context with another selector or that is frozen, before it
/// communicates; and what the exchange throws: then the context is as it was, but for what was
/// tuned.
TuneTogetherReport tune_together(Exchange& exchange, Context& context, const Device& device,
                                 std::span<const WantedProblem> wanted, TuningTime time = {},
                                 Tuner::Settings settings = {});

}  // namespace attune::distributed
