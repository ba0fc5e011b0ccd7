// Tuning for the chain: which candidates are searched, what they have to beat, and where the result
// is kept.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "chain/tiers.hpp"

namespace attune::chain {

/// What a tuning found.
struct Tuned {
  TuneResult result;
  std::optional<Choice> choice;  // nothing: no candidate is any good
  ConfigRow row;                 // of the choice
  std::vector<TrialRow> trials;
  bool stopped = false;          // by the settings' stop(), before the end: not kept
  std::string failures() const;  // the first that are of no use, a line each
};

/// Tunes; the caller holds the device's measuring lock. `incumbent` is what is stored now, if
/// anything (its kernel is null otherwise).
/// Throws Unsupported when no kernel takes the problem, and what making its tensors throws.
Tuned run_tuning(State& state, Call& call, const Tuner::Settings& settings,
                 const Candidate& incumbent);

/// Writes a result into the user's database. Returns why it could not be, or ""; the store warned
/// of it, once.
std::string publish(State& state, const Tuned& tuned);

/// The lease of a problem over processes, until destroyed.
class Lease {
 public:
  /// Asks again until `patience` is over. False from held() when another process kept it.
  Lease(ConfigStore& store, const RowKey& key, std::chrono::milliseconds tuning,
        std::chrono::milliseconds patience);
  ~Lease();
  Lease(const Lease&) = delete;
  Lease& operator=(const Lease&) = delete;
  bool held() const { return held_; }

 private:
  ConfigStore& store_;
  const RowKey& key_;
  bool held_ = false;
};

Choice retune(State& state, Call& call);
ConfigSelectorChain::TuneReport tune_and_store(State& state, Call& call,
                                               const Tuner::Settings& settings);

/// Checks the choice for the backward pass of a problem that was just tuned against its oracle,
/// when there is such an op ("<op>.backward"), and quarantines it when it is wrong.
void validate_backward(State& state, Call& call, std::uint64_t seed);

/// Stores that a candidate must not be tried again for a problem.
void quarantine(State& state, const RowKey& key, const Candidate& candidate,
                const std::string& reason);

}  // namespace attune::chain
