// The chain that turns a problem into a kernel and config:
//
//   override -> overlay -> pin -> memory -> persistent (user, site, shipped) -> autotune ->
//   heuristic -> error
//
// One path for every policy: a policy only says which tiers are asked. Overrides and overlays are
// never stored; heuristic choices live in memory only and never hide a row or a later tuning; an
// override that does not fit is an error. A row of another kernel version, library or driver is
// stale: used while it still fits, and listed to be tuned again.
#pragma once

#include <atomic>
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

/// What has changed since a row was measured that may make another config better, "tuned by attune
/// 0.1.0, this is 0.2.0", or "". Such a row is used while it fits, and tuned again where that is
/// allowed.
std::string why_stale(const ConfigRow& row, const ErasedKernel& kernel, const DeviceInfo& device);

class ConfigSelectorChain final : public ConfigSelector {
 public:
  struct Settings {
    StoreSettings store;
    AutotunePolicy policy;
    Tuner::Settings tuner;
    /// Where processes that measure on the same device meet; "": they do not.
    std::string lock_folder = {};
    /// A file that problems are counted in for which nothing was tuned, to be given to `attune
    /// tune @FILE`; "": none. Tuned problems cost nothing by it.
    std::string record = {};
  };

  /// `registry` and `events` outlive the chain. Databases are opened on the first look-up that
  /// reaches them.
  ConfigSelectorChain(const Registry& registry, EventBus& events, Settings settings);
  ~ConfigSelectorChain() override;

  Choice select(const SelectionKey& key, ProblemRef problem, const Request& request) override;
  Decision explain(ProblemRef problem, const Request& request) override;
  void forget(ProblemRef problem, const Request& request) override;
  Choice retune(ProblemRef problem, const Request& request) override;

  /// Tunes a problem now and stores what it finds, as `attune tune` does: with its own budget,
  /// whatever the policy. `trials` come through the context's events. Throws Unsupported;
  /// CacheError when the result cannot be written.
  struct TuneReport {
    TuneResult result;
    Choice choice;
    RowKey key;
    ConfigRow row;
  };
  TuneReport tune(ProblemRef problem, const Request& request, const Tuner::Settings& settings);

  /// The row that makes tuning a problem unnecessary: of this very problem, of use for the request
  /// as things are here and now, and measured with this kernel, library and driver.
  std::optional<ConfigRow> tuned_row(ProblemRef problem, const Request& request);

  /// Problems tuned in this process, and look-ups since the start that were answered by each slow
  /// tier.
  struct Counters {
    std::uint64_t tunings = 0;
    std::uint64_t overrides = 0, overlays = 0, pins = 0, persistent_hits = 0, heuristics = 0;
    std::uint64_t stale_hits = 0, bucket_hits = 0, refused_rows = 0;
  };
  Counters counters() const;

  ConfigStore& store();
  ConfigCache& cache();
  const AutotunePolicy& policy() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace attune
