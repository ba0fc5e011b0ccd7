// The autotune tier: when a problem may be tuned by the call that asks for it, and how threads and
// processes see to it that one of them does.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <exception>
#include <mutex>
#include <thread>

#include <attune/core/error.hpp>
#include <attune/core/log.hpp>
#include <attune/tuner/objective.hpp>

#include "chain/tuning.hpp"
#include "measuring/measuring_lock.hpp"

namespace attune::chain {
namespace {

using std::chrono::milliseconds;

constexpr auto kPollEvery = milliseconds(50);
constexpr int kPatience = 4;  // times the problem's budget, to wait for another tuner
constexpr auto kAskAgainAfter = milliseconds(500);  // for a lease that another process has

/// Microseconds that online tuning has taken in this process, in all contexts.
std::atomic<std::int64_t>& spent_us() {
  static std::atomic<std::int64_t> spent = 0;
  return spent;
}

milliseconds left_of(const AutotunePolicy& policy) {
  const auto spent = std::chrono::microseconds(spent_us().load(std::memory_order_relaxed));
  return std::chrono::floor<milliseconds>(policy.process_budget - spent);
}

std::string name_of(const AutotunePolicy& policy) {
  for (const std::string& name : policy_names()) {
    AutotunePolicy full = AutotunePolicy::of(parse_policy(name));
    full.problem_budget = policy.problem_budget;
    full.process_budget = policy.process_budget;
    if (policy == full) return "policy " + name;
  }
  return "the policy";
}

Answer skip(State& state, Call& call, std::string why) {
  if (state.events.active()) {
    Event event = call.event(EventKind::kTuneSkipped, Tier::kAutotune);
    event.reason = why;
    state.events.emit(event);
  }
  return Answer::miss("not tuned: " + std::move(why));
}

void announce(State& state, const Call& call) {
  static std::once_flag once;
  std::call_once(once, [&] {
    const std::string& path = state.settings.store.user_path;
    const bool kept = call.policy.persist_autotune && state.store().stores();
    log(LogLevel::kInfo,
        str("tuning ", call.describe(), ", as every new problem: at most ",
            call.policy.problem_budget.count(), " ms each and ", call.policy.process_budget.count(),
            " ms in this process. Results are kept ", kept ? "in " + path : "until it ends",
            "; ATTUNE_POLICY=db turns tuning off"));
  });
}

/// Tuning has nothing to find: remembers the default as final. Where the error is bounded it does
/// not serve, as nobody has measured its error.
void settle_for_heuristic(State& state, Call& call) {
  if (call.request.constraints.bounds_error()) return;
  if (const Answer heuristic = ask_heuristic(state, call); heuristic.choice) {
    Choice final_choice = *heuristic.choice;
    final_choice.tier = Tier::kAutotune;
    remember(state, call, final_choice);
  }
}

/// No candidate is of use. The caller still holds the ticket, so no other thread tries meanwhile.
Answer give_up(State& state, Call& call, const std::string& reasons) {
  log(LogLevel::kWarning,
      str("tuning ", call.describe(), " failed, the heuristic is used from now on:", reasons));
  settle_for_heuristic(state, call);
  return Answer::miss("tuned, and no candidate is of use:" + reasons);
}

Tuner::Settings online_settings(const State& state, const Call& call) {
  Tuner::Settings settings = state.settings.tuner;
  settings.budget = std::min(call.policy.problem_budget, left_of(call.policy));
  settings.stop = [wanted = settings.stop, &device = call.device(), stream = call.request.stream] {
    return wanted() || device.is_capturing(stream);
  };
  return settings;
}

Answer tune_online(State& state, Call& call, const Candidate& incumbent) {
  announce(state, call);
  const Tuner::Settings settings = online_settings(state, call);
  const auto start = settings.now();
  const auto account = [&] {
    const auto taken =
        std::chrono::duration_cast<std::chrono::microseconds>(settings.now() - start);
    spent_us().fetch_add(taken.count(), std::memory_order_relaxed);
  };
  Tuned tuned;
  try {
    tuned = run_tuning(state, call, settings, incumbent);
    account();
  } catch (const std::exception& error) {
    account();
    return give_up(state, call, str("\n  ", error.what()));
  }
  if (tuned.stopped) return skip(state, call, "it was stopped");
  if (!tuned.choice) return give_up(state, call, tuned.failures());
  if (call.policy.persist_autotune) publish(state, tuned);
  remember(state, call, *tuned.choice);
  if (call.policy.validate_backward) validate_backward(state, call, settings.seed);
  const Candidate winner{tuned.choice->kernel, tuned.choice->config};
  if (const std::string why = call.why_too_large(winner); !why.empty()) {
    call.is_tuned_above_limit = true;
    return Answer::refused(describe(winner),
                           str("tuned, and passed over: ", describe(winner), ' ', why));
  }
  const std::string_view unit = unit_of(state.settings.tuner);
  return Answer::chosen(Tier::kAutotune, winner,
                        str("tuned: ", tuned.row.median_us, ' ', unit, ", the default ",
                            tuned.row.default_us, ' ', unit));
}

/// Why a call must not be tuned now, or "".
std::string why_not_tune(const State& state, Call& call) {
  const AutotunePolicy& policy = call.policy;
  if (policy.cache_miss_fallback != AutotunePolicy::Miss::kAutotune || !policy.allow_autotune) {
    return name_of(policy) + " does not tune";
  }
  if (!may_tune(policy)) {
    return str("over budget: ", policy.process_budget.count(),
               " ms of tuning are allowed in this process");
  }
  const Choice* entry = state.cache.find(call.key);
  if (entry != nullptr && entry->origin != Tier::kHeuristic && !entry->bucket_hit &&
      !call.why_too_large({entry->kernel, entry->config}).empty()) {
    call.is_tuned_above_limit = true;
  }
  if (call.is_tuned_above_limit) {
    return "it was tuned before, to what needs more workspace; to tune under a bound, give it as a "
           "constraint";
  }
  if (entry != nullptr && entry->origin == Tier::kHeuristic && entry->tier >= Tier::kAutotune) {
    return "every candidate failed before in this process";
  }
  if (call.device().is_capturing(call.request.stream)) return "stream is capturing";
  if (competitors(state, call).empty()) return "no kernel takes the problem";
  return "";
}

}  // namespace

bool may_tune(const AutotunePolicy& policy) {
  return policy.cache_miss_fallback == AutotunePolicy::Miss::kAutotune && policy.allow_autotune &&
         policy.problem_budget > milliseconds(0) && left_of(policy) > milliseconds(0);
}

bool has_one_candidate(const State& state, const Call& call) {
  if (call.request.constraints.bounds_error()) return false;  // its error is to be measured
  const auto kernels = competitors(state, call);
  if (kernels.size() != 1) return false;
  const ErasedKernel& kernel = *kernels.front()->kernel;
  const Params heuristic = kernel.params(kernel.erased_heuristic(call.problem, call.info()));
  const auto configs = kernel.few_candidates(call.problem, call.info());
  return configs && std::all_of(configs->begin(), configs->end(), [&](const ConfigBlob& config) {
           return kernel.params(config) == heuristic;
         });
}

Lease::Lease(ConfigStore& store, const RowKey& key, milliseconds tuning, milliseconds patience)
    : store_(store), key_(key) {
  constexpr std::int64_t kSlackSeconds = 30;  // for what a tuning does besides measuring
  const std::int64_t seconds =
      std::chrono::ceil<std::chrono::seconds>(tuning).count() + kSlackSeconds;
  const auto deadline = std::chrono::steady_clock::now() + patience;
  try {
    while (!(held_ = store_.acquire_lease(key_, seconds)) &&
           std::chrono::steady_clock::now() < deadline) {
      std::this_thread::sleep_for(kPollEvery);
    }
  } catch (const CacheError& error) {
    log_once(LogLevel::kWarning, str("tuning without a lease over processes: ", error.what()));
    held_ = true;
  }
}

Lease::~Lease() {
  if (!held_) return;
  try {
    store_.release_lease(key_);
  } catch (const CacheError& error) {
    log_once(LogLevel::kWarning,
             str("a lease could not be released, it will expire: ", error.what()));
  }
}

Answer select_autotune(State& state, Call& call) {
  if (std::string why = why_not_tune(state, call); !why.empty()) {
    const bool tunes = call.policy.cache_miss_fallback == AutotunePolicy::Miss::kAutotune &&
                       call.policy.allow_autotune;
    return tunes ? skip(state, call, std::move(why)) : Answer::not_asked(std::move(why));
  }
  if (has_one_candidate(state, call)) {
    settle_for_heuristic(state, call);
    return Answer::miss("there is one candidate only");
  }
  const bool wait = call.policy.wait_for_other_tuner;
  const milliseconds patience = wait ? kPatience * call.policy.problem_budget : milliseconds(0);
  const auto ticket = state.flights.enter(call.key, patience);
  if (!ticket) return skip(state, call, "another thread or process tunes it");
  // It may have been tuned since memory was asked.
  if (Answer memory = ask_memory(state, call); memory.choice) return memory;
  const MeasuringLock measuring(call.device(), state.settings.lock_folder, wait,
                                state.settings.tuner.stop);
  if (!measuring.held()) return skip(state, call, "something else is being tuned on the device");
  if (!call.policy.persist_autotune) return tune_online(state, call, {});

  const Lease lease(state.store(), call.row_key(), call.policy.problem_budget, patience);
  Candidate incumbent;
  if (call.policy.use_databases) {
    state.store().reload_user();  // another process may have published it meanwhile
    Answer row = ask_persistent(state, call);
    if (row.choice && !row.is_to_be_tuned_again) return row;
    if (row.choice) incumbent = {row.choice->kernel, row.choice->config};
  }
  if (lease.held()) return tune_online(state, call, incumbent);
  state.flights.postpone(call.key, SingleFlight::Clock::now() + kAskAgainAfter);
  return skip(state, call, "another process tunes it");
}

Answer explain_autotune(State& state, Call& call) {
  if (std::string why = why_not_tune(state, call); !why.empty())
    return Answer::not_asked(std::move(why));
  if (call.is_answered) return Answer::not_asked("an earlier tier answers");
  if (has_one_candidate(state, call)) return Answer::not_asked("there is one candidate only");
  return Answer::not_asked(str("select would tune now, for at most ",
                               call.policy.problem_budget.count(),
                               " ms; what stands below is what it would use if it could not"));
}

}  // namespace attune::chain
