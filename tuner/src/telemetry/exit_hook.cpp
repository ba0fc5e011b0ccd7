#include "telemetry/exit_hook.hpp"

#include <cstdlib>
#include <mutex>
#include <set>
#include <utility>

namespace attune::telemetry {

/// Never destroyed, as are the objects whose hooks these are.
struct LiveHooks {
  std::mutex mutex;
  std::set<ExitHook*> hooks;

  static LiveHooks& all() {
    static LiveHooks* const kept = [] {
      std::atexit([] { all().call(); });
      return new LiveHooks;
    }();
    return *kept;
  }

  void call() {
    const std::lock_guard lock(mutex);
    for (ExitHook* hook : hooks) hook->at_exit_();
    hooks.clear();
  }
};

ExitHook::ExitHook(std::function<void()> at_exit) : at_exit_(std::move(at_exit)) {
  LiveHooks& live = LiveHooks::all();
  const std::lock_guard lock(live.mutex);
  live.hooks.insert(this);
}

ExitHook::~ExitHook() {
  LiveHooks& live = LiveHooks::all();
  const std::lock_guard lock(live.mutex);
  live.hooks.erase(this);
}

}  // namespace attune::telemetry
