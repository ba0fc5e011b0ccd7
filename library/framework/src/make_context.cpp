#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <system_error>

#include <attune/cache/row_request.hpp>
#include <attune/core/environment.hpp>
#include <attune/core/error.hpp>
#include <attune/core/params.hpp>
#include <attune/framework.hpp>

namespace attune {
namespace {

Policy policy_from_environment() {
  const std::optional<std::string> text = read_environment("ATTUNE_POLICY");
  if (!text) return Policy::kTune;
  try {
    return parse_policy(*text);
  } catch (const InvalidArgument& error) {
    throw InvalidArgument(str("environment variable ATTUNE_POLICY: ", error.what()));
  }
}

std::chrono::seconds reload_seconds_from_environment() {
  const std::optional<std::string> text = read_environment("ATTUNE_RELOAD_SECONDS");
  constexpr std::int64_t kMost = 1'000'000'000;
  std::int64_t seconds = 0;
  if (text && (!parse_integer(*text, seconds) || seconds < 0 || seconds > kMost)) {
    throw InvalidArgument(str("environment variable ATTUNE_RELOAD_SECONDS: '", *text,
                              "': expected a whole number of seconds, 0 for never"));
  }
  return std::chrono::seconds(seconds);
}

/// The host's threads, where they are not all that the process may use, run by attune.
std::optional<HostThreads> host_threads(const ContextOptions& options) {
  HostThreads threads{.pool = options.parallel_for};
  std::optional<int> most = options.max_threads;
  if (const auto text = read_environment("ATTUNE_THREADS"); text && !most) {
    constexpr std::int64_t kMost = 1'000'000;
    std::int64_t value = 0;
    if (!parse_integer(*text, value) || value < 1 || value > kMost) {
      throw InvalidArgument(str("environment variable ATTUNE_THREADS: '", *text,
                                "': expected a whole number of threads, at least 1"));
    }
    most = static_cast<int>(value);
  }
  if (most) threads.most = *most;
  if (!most && !threads.pool) return std::nullopt;
  return threads;
}

void load_plugins(const std::vector<std::string>& given, Registry& registry) {
  for (const std::string& path : given) load_plugin(path, registry);
  if (!given.empty()) return;
  const std::string listed = read_environment("ATTUNE_PLUGINS").value_or("");
  for (std::size_t begin = 0; begin < listed.size();) {
    const std::size_t end = std::min(listed.find(':', begin), listed.size());
    const std::string path = listed.substr(begin, end - begin);
    begin = end + 1;
    if (path.empty()) continue;
    try {
      load_plugin(path, registry);
    } catch (const Error& error) {
      throw InvalidArgument(str("environment variable ATTUNE_PLUGINS: ", error.what()));
    }
  }
}

/// The user's run-time folder, where there is one; else the database's.
std::string lock_folder(const std::string& database) {
  const char* runtime = secure_getenv("XDG_RUNTIME_DIR");
  if (runtime != nullptr && *runtime == '/') return runtime;
  if (database.empty()) return "";
  std::error_code error;
  return std::filesystem::absolute(database, error).parent_path().string();
}

ConfigSelectorChain::Settings chain_settings(const ContextOptions& options) {
  ConfigSelectorChain::Settings settings;
  settings.store = default_store_settings();
  if (options.database) settings.store.user_path = *options.database;
  settings.store.read_only = options.read_only.value_or(false);
  settings.policy =
      AutotunePolicy::of(options.policy ? *options.policy : policy_from_environment());
  if (options.tuner) settings.tuner = *options.tuner;
  if (options.objective != nullptr) settings.tuner.objective = options.objective;
  if (settings.tuner.objective != nullptr) check_objective_name(settings.tuner.objective->name());
  settings.lock_folder = lock_folder(settings.store.user_path);
  const auto given_or = [](const std::optional<std::string>& given, std::string_view variable) {
    return given ? *given : read_environment(variable).value_or("");
  };
  settings.record = given_or(options.record, "ATTUNE_RECORD");
  settings.events = given_or(options.events, "ATTUNE_EVENTS");
  settings.stats = given_or(options.stats, "ATTUNE_STATS");
  settings.reload_every =
      options.reload_every ? *options.reload_every : reload_seconds_from_environment();
  return settings;
}

}  // namespace

std::unique_ptr<Context> make_framework_context(const ContextOptions& options) {
  warn_about_unknown_environment();
  const ConfigSelectorChain::Settings settings = chain_settings(options);
  std::optional<HostThreads> threads = host_threads(options);
  Registry registry = threads ? Registry(*std::move(threads)) : Registry();
  for (const auto& add : options.register_kernels) add(registry);
  load_plugins(options.plugins, registry);
  return std::make_unique<Context>(
      std::move(registry), [&](const Registry& known_kernels, EventBus& events) {
        return std::make_unique<ConfigSelectorChain>(known_kernels, events, settings);
      });
}

ConfigSelectorChain& chain_of(Context& context) {
  auto* chain = dynamic_cast<ConfigSelectorChain*>(&context.selector());
  if (chain == nullptr) throw InvalidArgument("context: its selector is not attune's chain");
  return *chain;
}

}  // namespace attune
