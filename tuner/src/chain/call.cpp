#include "chain/call.hpp"

#include <algorithm>
#include <cctype>

#include <attune/cache/row_request.hpp>
#include <attune/core/count_text.hpp>
#include <attune/core/error.hpp>
#include <attune/core/log.hpp>
#include <attune/tuner/objective.hpp>

namespace attune::chain {
namespace {

const SelectionKey& with_device(const SelectionKey& key, const Request& request) {
  if (request.device == nullptr)
    throw InvalidArgument("request: device is null, expected one of the registry's");
  return key;
}

void report_files(const ConfigStore& store, EventBus& events) {
  for (const ConfigStore::FileStatus& file : store.status()) {
    if (file.reason.empty() && file.bad_rows == 0) continue;
    const std::string text =
        file.reason.empty()
            ? str(file.path, ": ", count_text(file.bad_rows, "bad row is", "bad rows are"),
                  " left out")
            : str(file.path, ": ", file.reason);
    Event event;
    event.kind = EventKind::kDatabase;
    event.reason = text;
    events.emit(event);
  }
}

}  // namespace

const AutotunePolicy& policy_in_force(const State& state, const scopes::Scope* scope) {
  const AutotunePolicy* scoped = scopes::policy_of(scope);
  const AutotunePolicy& policy =
      scoped == nullptr ? *state.policy.load(std::memory_order_acquire) : *scoped;
  if (!state.is_frozen.load(std::memory_order_acquire) || !policy.allow_autotune) return policy;
  thread_local AutotunePolicy frozen;
  frozen = policy;
  frozen.allow_autotune = false;
  return frozen;
}

ConfigStore& State::store() {
  if (ConfigStore* open = opened_.load(std::memory_order_acquire)) return *open;
  const std::lock_guard lock(store_mutex_);
  if (store_ == nullptr) {
    store_ = std::make_unique<ConfigStore>(settings.store);
    opened_.store(store_.get(), std::memory_order_release);
    if (events.active()) report_files(*store_, events);
  }
  return *store_;
}

Call::Call(const State& state, const SelectionKey& known_as, ProblemRef what, const Request& asked)
    : key(with_device(known_as, asked)),
      problem(what),
      request(asked),
      op(state.registry.op(what.op)),
      policy(policy_in_force(state, scopes::active)),
      generation(state.generation.load(std::memory_order_acquire)),
      objective_(objective_name(state.settings.tuner)) {}

std::string Call::why_too_large(const Candidate& candidate) {
  const std::size_t bound = request.constraints.workspace_bytes;
  const std::size_t most = std::min(bound, request.workspace_limit);
  if (most == kNoLimit) return "";
  const std::size_t bytes = candidate.kernel->erased_workspace_bytes(problem, candidate.config);
  if (bytes <= most) return "";
  if (bytes <= bound) is_bound = true;
  return str("needs ", bytes, " bytes of workspace, ",
             bytes > bound ? "asked for were" : "the limit is", " at most ", most);
}

SelectionKey Call::memory_key() const {
  SelectionKey in_memory = key;
  if (is_bound) in_memory.workspace_limit = request.workspace_limit;
  return in_memory;
}

const RowKey& Call::row_key() {
  if (!row_key_) {
    std::string platform(request.platform.view());
    for (char& c : platform) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    row_key_ =
        RowKey{std::string(op.kernel_op), info().device_class,
               RowRequest{std::move(platform), std::string(objective_), request.constraints}.text(),
               op.text(problem, false)};
  }
  return *row_key_;
}

const std::string& Call::bucket() {
  if (!bucket_) bucket_ = op.text(problem, true);
  return *bucket_;
}

Event Call::event(EventKind kind, Tier tier) {
  Event event;
  event.kind = kind;
  event.op = called_as();
  event.problem = row_key().problem;
  event.device_class = row_key().device_class;
  event.tier = tier;
  return event;
}

std::string Call::describe() const { return str(called_as(), " ", op.text(problem, false)); }

Answer Answer::chosen(Tier tier, const Candidate& candidate, std::string reason) {
  Answer answer;
  answer.choice = Choice{candidate.kernel, candidate.config, tier, tier, false};
  answer.outcome = TierNote::Outcome::kChosen;
  answer.reason = std::move(reason);
  answer.config = chain::describe(candidate);
  return answer;
}

Answer Answer::miss(std::string reason) {
  Answer answer;
  answer.reason = std::move(reason);
  return answer;
}

Answer Answer::refused(std::string config, std::string reason) {
  Answer answer = miss(std::move(reason));
  answer.outcome = TierNote::Outcome::kRefused;
  answer.config = std::move(config);
  return answer;
}

Answer Answer::not_asked(std::string reason) {
  Answer answer = miss(std::move(reason));
  answer.outcome = TierNote::Outcome::kNotAsked;
  return answer;
}

std::string describe(const Candidate& candidate) {
  return str(candidate.kernel->name(), " ", config_text(*candidate.kernel, candidate.config));
}

}  // namespace attune::chain
