// Tuning many problems: which are to be tuned, on which devices, and what came of it.
#pragma once

#include <chrono>
#include <cstdint>
#include <exception>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "output/table.hpp"
#include "problems/command_context.hpp"
#include "tuning/tune_progress.hpp"

namespace attune::cli {

inline constexpr std::chrono::milliseconds kProblemBudget{10'000};  // where --budget is not given

/// The row that makes tuning a target unnecessary: of this very problem, usable here, measured with
/// this kernel, library and driver.
std::optional<ConfigRow> known_row(const CommandContext& command, const Target& target);

class TuneRun {
 public:
  struct Settings {
    Tuner::Settings tuner;
    std::optional<std::chrono::milliseconds> budget;  // of all problems; nothing: 10 s for each
    bool retune = false;                              // problems that are tuned already, too
  };

  TuneRun(const CommandContext& command, Settings settings)
      : command_(command), settings_(std::move(settings)) {}

  /// Tunes the targets, in their order: each on its own device, or, with `devices`, on the first of
  /// these that is free, by a thread for each; several take them by longest_first(). Throws
  /// CacheError when results cannot be stored.
  void tune(const std::vector<Target>& targets, std::span<const Device* const> devices,
            TuneProgress& progress);

  /// A row for each target that was come to, in their order.
  Table table(const std::vector<Target>& targets) const;
  std::size_t tuned() const { return tuned_; }
  std::size_t skipped() const { return skipped_; }
  std::size_t failed() const { return failed_; }

 private:
  struct Result {
    ConfigRow row;
    std::string text;
    Tone tone = Tone::kGood;
  };
  struct Job {
    std::size_t index = 0;
    std::chrono::milliseconds budget{0};
  };

  std::optional<Job> next_job(const std::vector<Target>& targets, TuneProgress& progress);
  std::chrono::milliseconds budget_for_next() const;
  void work(const std::vector<Target>& targets, const Device* device, TuneProgress& progress);
  void tune_one(const Target& target, const Job& job, TuneProgress& progress);

  const CommandContext& command_;
  const Settings settings_;
  const std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
  std::size_t workers_ = 1;

  std::mutex mutex_;                            // of what follows
  std::vector<std::optional<Result>> results_;  // by target
  std::vector<std::size_t> queue_;              // targets, in the order they are taken
  std::size_t next_ = 0;
  std::size_t tuned_ = 0;
  std::size_t skipped_ = 0;
  std::size_t failed_ = 0;
  std::exception_ptr failure_;
};

}  // namespace attune::cli
