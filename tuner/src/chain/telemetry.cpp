// What a chain tells those who run programs: events as they happen, and counters at an interval.
#include <errno.h>
#include <unistd.h>

#include <string>
#include <system_error>

#include <attune/core/error.hpp>
#include <attune/core/log.hpp>
#include <attune/core/version.hpp>

#include "chain/tiers.hpp"
#include "telemetry/metrics_text.hpp"

namespace attune::chain {
namespace {

using telemetry::MetricsText;

void add_choices(const State& state, MetricsText& text) {
  text.counter("attune_choices",
               "Calls that each tier answered. Those that memory answers, nearly all, are not "
               "counted.");
  for (std::size_t tier = 0; tier < kTierCount; ++tier) {
    if (static_cast<Tier>(tier) == Tier::kMemory) continue;
    text.sample(static_cast<double>(state.counters.answers[tier]),
                {{"tier", to_string(static_cast<Tier>(tier))}});
  }
}

void add_counters(const State& state, MetricsText& text) {
  const struct {
    std::string_view name, help;
    double value;
  } counters[] = {
      {"attune_tunings", "Searches for the best config.",
       static_cast<double>(state.counters.tunings)},
      {"attune_tuning_seconds", "Time that they took.",
       static_cast<double>(state.counters.tuning_us) / 1e6},
      {"attune_stale_hits", "Choices from rows of another kernel, library or driver version.",
       static_cast<double>(state.counters.stale_hits)},
      {"attune_bucket_hits", "Choices from rows of a neighbour in the same bucket.",
       static_cast<double>(state.counters.bucket_hits)},
      {"attune_refused_rows", "Rows of databases that could not be used.",
       static_cast<double>(state.counters.refused_rows)},
      {"attune_faults", "Candidates that were wrong, failed or crashed, and launches that threw.",
       static_cast<double>(state.counters.faults)},
      {"attune_reloads", "Times that databases were taken up again and memory was emptied.",
       static_cast<double>(state.counters.reloads)},
  };
  for (const auto& counter : counters) {
    text.counter(counter.name, counter.help);
    text.sample(counter.value);
  }
}

void add_databases(const State& state, MetricsText& text) {
  const ConfigStore* store = state.open_store();
  if (store == nullptr) return;
  const std::vector<ConfigStore::FileStatus> files = store->status();
  const auto add = [&](std::string_view name, std::string_view help, auto value) {
    text.gauge(name, help);
    for (const ConfigStore::FileStatus& file : files) {
      if (file.path.empty()) continue;
      text.sample(static_cast<double>(value(file)),
                  {{"layer", to_string(file.layer)}, {"file", file.path}});
    }
  };
  using Status = ConfigStore::FileStatus;
  add("attune_database_used", "Whether the database is read: 1, or 0.",
      [](const Status& file) { return file.used ? 1 : 0; });
  add("attune_database_rows", "Its decisions.", [](const Status& file) { return file.rows; });
  add("attune_database_bad_rows", "Its rows that are damaged or not legal, and left out.",
      [](const Status& file) { return file.bad_rows; });
}

std::string stats_text(const State& state) {
  MetricsText text({{"program", program_invocation_short_name}, {"pid", str(getpid())}});
  text.gauge("attune_build", "1; the label says what runs.");
  text.sample(1, {{"version", ATTUNE_VERSION}});
  add_choices(state, text);
  add_counters(state, text);
  text.gauge("attune_remembered_choices", "Problems that memory answers.");
  text.sample(static_cast<double>(state.cache.size()));
  add_databases(state, text);
  return text.take();
}

/// Nothing that goes wrong with a database ends a program; a file that cannot be read says so.
void reload_what_changed(State& state) {
  if (state.open_store() == nullptr) return;  // the first call reads what there is then
  try {
    if (state.store().may_have_changed()) reload(state, Reload::kWhenRowsDiffer);
  } catch (const std::exception& error) {
    log_once(LogLevel::kWarning, str("databases could not be read again: ", error.what()));
  }
}

void start_watching(State& state) {
  const std::chrono::milliseconds every = state.settings.reload_every;
  if (every.count() <= 0) return;
  try {
    state.watching_databases.emplace(
        every, [&state] { reload_what_changed(state); }, [] {});
  } catch (const std::system_error& error) {
    log_once(LogLevel::kWarning,
             str("no thread could be started to look for replaced databases: ", error.what()));
  }
}

}  // namespace

void start_telemetry(State& state) {
  const ConfigSelectorChain::Settings& settings = state.settings;
  if (!settings.events.empty()) state.event_file.emplace(state.events, settings.events);
  start_watching(state);
  if (settings.stats.empty()) return;
  state.counting_faults = state.events.subscribe(
      [&state](const Event& event) {
        if (event.fault) ++state.counters.faults;
      },
      EventBus::MemoryHits::kLeftOut);
  state.stats_file.emplace(settings.stats, settings.stats_every,
                           [&state] { return stats_text(state); });
}

}  // namespace attune::chain
