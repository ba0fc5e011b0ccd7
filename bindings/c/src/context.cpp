#include <string>

#include <nlohmann/json.hpp>

#include <attune/attune.hpp>

#include "handles.hpp"
#include "json_text.hpp"
#include "status.hpp"
#include "structs.hpp"

namespace attune::c {
namespace {

/// "" stays what it is: "none" to those that take it.
std::optional<std::string> given_or_environment(const char* text) {
  return text == nullptr ? std::nullopt : std::optional<std::string>(text);
}

ContextOptions context_options(const attune_context_options& given) {
  ContextOptions options;
  if (given.plugin_count > 0) require("options: plugins", given.plugins);
  for (std::size_t i = 0; i < given.plugin_count; ++i) {
    require("options: plugins", given.plugins[i]);
    options.plugins.emplace_back(given.plugins[i]);
  }
  if (given.policy != nullptr) options.policy = parse_policy(given.policy);
  options.database = given_or_environment(given.database);
  if ((given.flags & ATTUNE_READ_ONLY) != 0) options.read_only = true;
  options.record = given_or_environment(given.record);
  options.events = given_or_environment(given.events);
  options.stats = given_or_environment(given.stats);
  if (given.reload_ms < -1) {
    throw InvalidArgument(
        str("options: reload_ms: got ", given.reload_ms, ", expected -1 or more"));
  }
  if (given.reload_ms != 0) {
    options.reload_every = std::chrono::milliseconds(std::max<std::int64_t>(given.reload_ms, 0));
  }
  if (given.max_threads < 0) {
    throw InvalidArgument(str("options: max_threads: got ", given.max_threads, ", expected >= 0"));
  }
  if (given.max_threads > 0) options.max_threads = given.max_threads;
  return options;
}

}  // namespace
}  // namespace attune::c

using namespace attune::c;  // NOLINT(google-build-using-namespace): these are its functions

attune_status attune_context_create(const attune_context_options* given,
                                    attune_context** out) noexcept {
  return guarded([&] {
    require("out", out);
    attune::ContextOptions options;
    if (given != nullptr) {
      options = context_options(read_struct("options", given, ATTUNE_READ_ONLY));
    }
    *out = new attune_context{attune::make_context(options)};
  });
}

void attune_context_destroy(attune_context* context) noexcept { delete context; }

attune_status attune_context_set_policy(attune_context* context, const char* policy) noexcept {
  return guarded([&] {
    require("policy", policy);
    chain_of(context_of(context)).set_policy(attune::parse_policy(policy));
  });
}

attune_status attune_context_reload(attune_context* context) noexcept {
  return guarded([&] { context_of(context).reload(); });
}

attune_status attune_devices(attune_context* context, char** json) noexcept {
  return guarded([&] {
    require("json", json);
    const attune::Registry& registry = context_of(context).registry();
    Json devices = Json::array();
    for (const attune::Device* device : registry.devices()) {
      const attune::DeviceInfo& info = device->info();
      devices.push_back({{"device", attune::str(info.id)},
                         {"name", info.name},
                         {"arch", info.arch},
                         {"device_class", info.device_class},
                         {"cores", info.cores},
                         {"memory_bytes", info.memory_bytes},
                         {"driver", info.driver},
                         {"features", info.features}});
    }
    for (const std::string& backend : registry.backends()) {
      const std::string reason = registry.why_no_devices(backend);
      if (reason.empty()) continue;
      devices.push_back({{"device", nullptr}, {"backend", backend}, {"reason", reason}});
    }
    *json = json_text(devices);
  });
}

attune_status attune_databases(attune_context* context, char** json) noexcept {
  return guarded([&] {
    require("json", json);
    Json databases = Json::array();
    for (const auto& file : chain_of(context_of(context)).store().status()) {
      databases.push_back({{"layer", to_string(file.layer)},
                           {"path", file.path},
                           {"used", file.used},
                           {"writable", file.writable},
                           {"rows", file.rows},
                           {"bad_rows", file.bad_rows},
                           {"reason", file.reason}});
    }
    *json = json_text(databases);
  });
}

attune_status attune_counters(attune_context* context, char** json) noexcept {
  return guarded([&] {
    require("json", json);
    const auto counters = chain_of(context_of(context)).counters();
    *json = json_text({{"tunings", counters.tunings},
                       {"tuning_us", counters.tuning_us},
                       {"overrides", counters.overrides},
                       {"overlays", counters.overlays},
                       {"pins", counters.pins},
                       {"persistent_hits", counters.persistent_hits},
                       {"heuristics", counters.heuristics},
                       {"stale_hits", counters.stale_hits},
                       {"bucket_hits", counters.bucket_hits},
                       {"refused_rows", counters.refused_rows},
                       {"reloads", counters.reloads}});
  });
}
