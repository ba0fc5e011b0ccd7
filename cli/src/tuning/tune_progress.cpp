#include "tuning/tune_progress.hpp"

#include <attune/core/error.hpp>

#include "output/text.hpp"

namespace attune::cli {

TuneProgress::TuneProgress(EventBus& bus, std::size_t problems, std::string_view unit, bool quiet)
    : progress_(quiet),
      problems_(problems),
      unit_(unit),
      begin_(std::chrono::steady_clock::now()),
      subscription_(bus.subscribe([this](const Event& event) { on_event(event); })) {}

void TuneProgress::begin(std::size_t index, std::string_view problem) {
  const std::lock_guard lock(mutex_);
  index_ = index;
  problem_ = problem;
  candidates_ = settled_ = 0;
  best_ = 0;
  progress_.update(line());
}

void TuneProgress::finished(std::size_t index, std::string_view problem, std::string_view result) {
  const std::lock_guard lock(mutex_);
  ++done_;
  progress_.finish(str('[', index + 1, '/', problems_, "] ", problem, "  ", result));
}

void TuneProgress::on_event(const Event& event) {
  const std::lock_guard lock(mutex_);
  if (event.kind == EventKind::kTuneStarted) candidates_ = event.candidates;
  if (event.kind == EventKind::kTrial) {
    ++settled_;
    if (event.median_us > 0 && (best_ == 0 || event.median_us < best_)) best_ = event.median_us;
  }
  progress_.update(line());
}

std::string TuneProgress::line() const {
  std::string text = str('[', index_ + 1, '/', problems_, "] ", problem_);
  if (candidates_ > 0) text += str("  ", settled_, '/', candidates_, " candidates");
  if (best_ > 0) text += str("  best ", number_text(best_), ' ', unit_);
  return text + eta();
}

std::string TuneProgress::eta() const {
  if (done_ == 0) return "";
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - begin_;
  const double left = static_cast<double>(problems_ - index_) / static_cast<double>(done_);
  return "  eta " + elapsed_text(elapsed.count() * left);
}

}  // namespace attune::cli
