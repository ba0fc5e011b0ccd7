#include "tuning/tune_run.hpp"

#include <algorithm>
#include <numeric>
#include <thread>

#include "output/text.hpp"
#include "program/interrupt.hpp"
#include "tuning/tune_plan.hpp"

namespace attune::cli {
namespace {

/// The chain stores what was timed, unless it was told to stop before the search had ended.
bool is_stored(const ConfigSelectorChain::TuneReport& report) {
  return report.row.median_us > 0 && (report.result.complete || !interrupted());
}

std::string result_text(const ConfigSelectorChain::TuneReport& report) {
  std::string text = report.result.incumbent_kept ? "kept" : "stored";
  if (!report.result.complete) text += ", budget ended";
  return text;
}

std::string news_of(const ConfigRow& row, std::string_view unit) {
  return str(row.kernel, ' ', config_or_default(row.config), "  ", number_text(row.median_us), ' ',
             unit, ", ", ratio_text(row.default_us / row.median_us), " over the heuristic");
}

}  // namespace

std::optional<ConfigRow> known_row(const CommandContext& command, const Target& target) {
  return command.chain().tuned_row(target.problem, command.request(target));
}

void TuneRun::tune(const std::vector<Target>& targets, std::span<const Device* const> devices,
                   TuneProgress& progress) {
  results_.resize(targets.size());
  queue_.resize(targets.size());
  std::iota(queue_.begin(), queue_.end(), std::size_t{0});
  if (devices.size() > 1) queue_ = longest_first(targets);
  if (devices.empty()) {
    work(targets, nullptr, progress);
  } else {
    workers_ = devices.size();
    std::vector<std::jthread> threads;
    for (const Device* device : devices) {
      threads.emplace_back([&, device] { work(targets, device, progress); });
    }
  }
  if (failure_) std::rethrow_exception(failure_);
}

void TuneRun::work(const std::vector<Target>& targets, const Device* device,
                   TuneProgress& progress) {
  try {
    while (const std::optional<Job> job = next_job(targets, progress)) {
      Target target = targets[job->index];
      if (device != nullptr) target.device = device;
      tune_one(target, *job, progress);
    }
  } catch (...) {
    // The next one could not be stored either.
    const std::lock_guard lock(mutex_);
    if (!failure_) failure_ = std::current_exception();
  }
}

std::optional<TuneRun::Job> TuneRun::next_job(const std::vector<Target>& targets,
                                              TuneProgress& progress) {
  const std::lock_guard lock(mutex_);
  for (; next_ < queue_.size() && !interrupted() && !failure_; ++next_) {
    const std::size_t index = queue_[next_];
    const Target& target = targets[index];
    progress.begin(next_, target.text);
    std::optional<ConfigRow> known = settings_.retune ? std::nullopt : known_row(command_, target);
    if (known) {
      ++skipped_;
      results_[index] = Result{std::move(*known), "already tuned", Tone::kFaint};
      continue;
    }
    const std::chrono::milliseconds budget = budget_for_next();
    if (budget.count() > 0) {
      ++next_;
      return Job{index, budget};
    }
  }
  return std::nullopt;
}

/// What is left of the budget, shared out among the problems that are left.
std::chrono::milliseconds TuneRun::budget_for_next() const {
  if (!settings_.budget) return kProblemBudget;
  const auto used = std::chrono::duration_cast<std::chrono::milliseconds>(
      std::chrono::steady_clock::now() - begin_);
  const std::size_t left = results_.size() - next_;
  const std::size_t at_once = std::min(workers_, left);
  return (*settings_.budget - used) * static_cast<std::int64_t>(at_once) /
         static_cast<std::int64_t>(left);
}

void TuneRun::tune_one(const Target& target, const Job& job, TuneProgress& progress) {
  try {
    Tuner::Settings tuner = settings_.tuner;
    tuner.budget = job.budget;
    const auto report = command_.chain().tune(target.problem, command_.request(target), tuner);
    if (!is_stored(report)) return;
    progress.finished(job.index, target.text, news_of(report.row, command_.unit()));
    const std::lock_guard lock(mutex_);
    ++tuned_;
    results_[job.index] = Result{report.row, result_text(report), Tone::kGood};
  } catch (const CacheError&) {
    throw;
  } catch (const Error& error) {
    if (interrupted()) return;
    const std::string text = str("failed: ", in_one_line(error.what()));
    progress.finished(job.index, target.text, text);
    const std::lock_guard lock(mutex_);
    ++failed_;
    results_[job.index] = Result{{}, text, Tone::kBad};
  }
}

Table TuneRun::table(const std::vector<Target>& targets) const {
  const Objective* const objective = command_.objective();
  const std::string unit = str(objective == nullptr ? "" : objective->name(),
                               objective == nullptr ? "" : "_", command_.unit());
  Table table({"op", "problem", "kernel", "config", objective == nullptr ? "median_us" : unit,
               "default_" + unit, "speedup", "tried", "refused", "noise", "result"});
  for (std::size_t i = 0; i < results_.size(); ++i) {
    if (!results_[i]) continue;
    const auto& [row, text, tone] = *results_[i];
    const double speedup = row.median_us > 0 ? row.default_us / row.median_us : 0;
    table.add({targets[i].op->name, targets[i].text, row.kernel,
               row.kernel.empty() ? Cell() : Cell(config_or_default(row.config)),
               Cell::unless_zero(row.median_us), Cell::unless_zero(row.default_us),
               Cell::unless_zero(speedup), row.candidates_tried, row.candidates_refused,
               row.median_us > 0 ? Cell(to_string(row.noise)) : Cell(), Cell(text, tone)});
  }
  return table;
}

}  // namespace attune::cli
