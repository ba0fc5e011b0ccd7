// What a kernel makes before it runs: when a choice is delivered, and never while a stream is
// capturing.
#include <chrono>
#include <cstring>

#include <attune/cache/artifact_cache.hpp>
#include <attune/core/error.hpp>
#include <attune/core/prepared_kernel.hpp>

#include "chain/tiers.hpp"

namespace attune::chain {
namespace {

/// The artifacts of this process, and what became of those that were asked for.
class CountedArtifacts final : public Artifacts {
 public:
  std::optional<std::string> find(std::string_view key) const override {
    std::optional<std::string> bytes = default_artifact_cache().find(key);
    (bytes ? found_ : missing_) = true;
    return bytes;
  }
  void keep(std::string_view key, std::string_view bytes) const override {
    if (default_artifact_cache().try_to_keep(key, bytes)) kept_ = true;
  }
  std::string_view say() const {
    if (kept_) return "made, and kept for the next process";
    return found_ && !missing_ ? "found on disk" : "made";
  }

 private:
  mutable std::atomic<bool> found_ = false, missing_ = false, kept_ = false;
};

bool is_same(const Choice& a, const Choice& b) {
  return a.kernel == b.kernel &&
         std::memcmp(a.config.bytes.data(), b.config.bytes.data(), a.config.bytes.size()) == 0;
}

void put_in_memory(State& state, const Call& call, const Choice& prepared) {
  const std::lock_guard lock(state.remembering);
  const SelectionKey key = call.memory_key();
  const Choice* known = state.cache.find(key);
  if (known == nullptr || !is_same(*known, prepared)) return;
  Choice entry = *known;
  entry.prepared = prepared.prepared;
  state.cache.put(key, entry);
}

void emit_prepared(State& state, Call& call, const Choice& choice, double us,
                   std::string_view how) {
  if (!state.events.active()) return;
  const std::string config = config_text(*choice.kernel, choice.config);
  Event event = call.event(EventKind::kPrepared, choice.tier);
  event.kernel = choice.kernel->name();
  event.version = choice.kernel->version();
  event.config = config;
  event.reason = how;
  event.prepare_us = us;
  state.events.emit(event);
}

}  // namespace

void prepare(State& state, Call& call, Choice& choice) {
  if (!choice.kernel->prepares() || choice.prepared != nullptr) return;
  const Device& device = call.device();
  choice.prepared = choice.kernel->erased_find_prepared(call.problem, choice.config, device);
  if (choice.prepared == nullptr) {
    if (device.is_capturing(call.request.stream)) {
      throw ExecutionError(str(call.called_as(), ": ", choice.kernel->name(),
                               " has not prepared this problem, and the stream is capturing: make "
                               "a Plan, or call once, before the capture"));
    }
    const CountedArtifacts artifacts;
    const auto start = std::chrono::steady_clock::now();
    choice.prepared =
        choice.kernel->erased_prepare(call.problem, choice.config, {device, artifacts});
    const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - start;
    emit_prepared(state, call, choice, took.count(), artifacts.say());
  }
  put_in_memory(state, call, choice);
}

}  // namespace attune::chain
