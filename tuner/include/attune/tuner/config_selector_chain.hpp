// The chain that turns a problem into a kernel and config. Its tiers are asked in this order, and
// the first that has an answer decides:
//
//   tier        answers when                                             its answer is kept
//   override    the call gives a config (it is an error if that does     never
//               not fit)
//   overlay     an OverlayScope of this thread gives one that fits       never
//   pin         an operator pinned the problem to a config               in memory
//   memory      the problem was decided before in this process
//   persistent  a database (the user's, the site's, a shipped one) has   in memory
//               a row for the problem, or for its bucket, that fits
//   autotune    the policy and its budgets allow to tune now, and the    in memory and the user's
//               stream is not capturing                                  database
//   heuristic   a kernel supports the problem: as the nearest tuned      in memory; hides no later
//               neighbour, else as it was tuned on the same CPU for      row and no later
//               another number of threads, else the default              tuning
//
// What needs more scratch memory than the request's limit is passed over by every tier, and what is
// chosen instead is remembered for that limit alone.
//
// When none has one, select() throws. There is one path for every policy: a policy only says which
// tiers are asked.
//
// A row of another kernel version, library or driver is stale: used while it fits, and tuned again
// where that is allowed.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <attune/cache/config_cache.hpp>
#include <attune/cache/config_store.hpp>
#include <attune/core/context.hpp>
#include <attune/tuner/policy.hpp>
#include <attune/tuner/tuner.hpp>

namespace attune {

/// Why a row is stale: what has changed since it was measured that may make another config better,
/// as in "tuned by attune 0.1.0, this is 0.2.0". "" when it is not.
std::string why_stale(const ConfigRow& row, const ErasedKernel& kernel, const DeviceInfo& device);

class ConfigSelectorChain final : public ConfigSelector {
 public:
  struct Settings {
    StoreSettings store;
    AutotunePolicy policy;
    Tuner::Settings tuner;
    /// A folder of lock files, by which processes measure on a device one at a time; "": they do
    /// not wait for each other.
    std::string lock_folder = {};
    /// A file in which calls are counted that nothing was tuned for (`attune tune @FILE` tunes
    /// them); "": none. Calls of tuned problems take no longer for it.
    std::string record = {};
    /// A file that first choices, tunings and faults are appended to as JSON lines; "": none. It is
    /// shared by processes and bounded (8 MiB, and as much in FILE.1). Launches take no longer.
    std::string events = {};
    /// A file of the counters below in OpenMetrics text, or a folder for one a process; "": none.
    std::string stats = {};
    std::chrono::milliseconds stats_every{5000};
    /// How often a thread looks whether databases were replaced, and reloads when they were; 0:
    /// never. It only looks at the files' dates, and reads what has changed.
    std::chrono::milliseconds reload_every{0};
  };

  /// `registry` and `events` outlive the chain. Databases are opened by the first call that memory
  /// does not answer.
  ConfigSelectorChain(const Registry& registry, EventBus& events, Settings settings);
  ~ConfigSelectorChain() override;

  Choice select(const SelectionKey& key, ProblemRef problem, const Request& request) override;
  Decision explain(ProblemRef problem, const Request& request) override;
  void forget(ProblemRef problem, const Request& request) override;
  Choice retune(ProblemRef problem, const Request& request) override;
  /// Reads the databases again that may have changed, and empties memory, so that the rows and pins
  /// that are there now are seen. What was tuned and could not be stored is kept; what a policy did
  /// not want stored is forgotten.
  void reload() override;

  /// From here on choices follow from what look-ups see now, or from `table` alone where one is
  /// given: nothing is tuned, reload() does nothing, forget(), retune() and tune() throw
  /// InvalidArgument, and memory is emptied of what was chosen before. There is no way back. Call
  /// it while nothing is being tuned.
  void freeze(std::optional<DatabaseContent> table = {});
  bool is_frozen() const;

  /// Tunes a problem now and stores the result, as `attune tune` does: within the budget of
  /// `settings`, whatever the policy. Each trial is an event. Throws Unsupported, ExecutionError
  /// when no candidate is of use or the search was stopped before it began, and CacheError when the
  /// result cannot be written.
  struct TuneReport {
    TuneResult result;
    Choice choice;
    RowKey key;
    ConfigRow row;
  };
  TuneReport tune(ProblemRef problem, const Request& request, const Tuner::Settings& settings);

  /// The row that makes tuning unnecessary: it was measured for this very problem with this version
  /// of kernel, library and driver, and may be used for the request.
  std::optional<ConfigRow> tuned_row(ProblemRef problem, const Request& request);

  /// Since the chain was made. Hits of the memory tier are not counted: that would cost more than
  /// they do.
  struct Counters {
    std::uint64_t tunings = 0;                            // searches, offline ones included
    std::uint64_t overrides = 0, overlays = 0, pins = 0;  // calls that each tier answered
    std::uint64_t persistent_hits = 0, heuristics = 0;    // likewise
    std::uint64_t stale_hits = 0, bucket_hits = 0;        // of the persistent hits
    std::uint64_t refused_rows = 0;                       // rows that could not be used
    std::uint64_t tuning_us = 0;                          // that the searches took
    std::uint64_t reloads = 0;                            // after which memory was emptied
  };
  Counters counters() const;

  ConfigStore& store();
  ConfigCache& cache();
  const AutotunePolicy& policy() const;
  /// The policy of calls from now on that no scope has another one for, on all threads.
  void set_policy(Policy policy);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace attune
