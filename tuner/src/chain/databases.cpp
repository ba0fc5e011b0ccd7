// The tiers that databases answer: pins, and rows of the user, the site and the installation.
#include <algorithm>
#include <cmath>
#include <span>
#include <utility>

#include <attune/cache/row_request.hpp>
#include <attune/core/count_text.hpp>
#include <attune/core/error.hpp>
#include <attune/core/log.hpp>
#include <attune/core/version.hpp>

#include "chain/tiers.hpp"

namespace attune {

std::string why_stale(const ConfigRow& row, const ErasedKernel& kernel, const DeviceInfo& device) {
  if (row.kernel_version != kernel.version()) {
    return str("tuned for version ", row.kernel_version, " of the kernel, which is at ",
               kernel.version());
  }
  if (row.library_version != ATTUNE_VERSION) {
    return str("tuned by attune ", row.library_version, ", this is " ATTUNE_VERSION);
  }
  if (row.toolkit != device.driver)
    return str("tuned under '", row.toolkit, "', this is '", device.driver, "'");
  return "";
}

namespace chain {
namespace {

/// A user's row that a site's or shipped one outranks: measured in noise, or for an older kernel.
bool is_weak(const State& state, const ConfigStore::Hit& hit) {
  if (hit.layer != Layer::kUser) return false;
  const RegisteredKernel* entry = state.registry.find_kernel(hit.row.kernel);
  return hit.row.noise == NoiseGrade::kC ||
         (entry != nullptr && hit.row.kernel_version < entry->kernel->version());
}

/// Best first: rows of this very problem, weak ones after the others, then rows of its bucket.
void sort_by_rank(const State& state, std::vector<ConfigStore::Hit>& hits) {
  const auto rank = [&](const ConfigStore::Hit& hit) {
    return hit.bucket ? 2 : is_weak(state, hit) ? 1 : 0;
  };
  std::stable_sort(hits.begin(), hits.end(),
                   [&](const auto& a, const auto& b) { return rank(a) < rank(b); });
}

/// The other rows of this very problem, and why they rank below the chosen one.
std::vector<std::string> rows_after(const State& state, const std::vector<ConfigStore::Hit>& hits,
                                    std::size_t chosen) {
  std::vector<std::string> rows;
  for (const ConfigStore::Hit& hit : std::span(hits).subspan(chosen + 1)) {
    if (hit.bucket) break;
    const bool weaker = is_weak(state, hit) && !is_weak(state, hits[chosen]);
    rows.push_back(str(describe_row(hit), ": ", hit.row.kernel, ' ', hit.row.config,
                       weaker ? ", measured in noise or for an older kernel" : ", comes later"));
  }
  return rows;
}

void emit_refusal(State& state, Call& call, Tier tier, std::string_view reason) {
  if (!state.events.active()) return;
  Event event = call.event(EventKind::kDatabase, tier);
  event.reason = reason;
  state.events.emit(event);
}

}  // namespace

Resolved validate_row(State& state, Call& call, const ConfigRow& row) {
  Resolved resolved = resolve_row(state, call, row.kernel, row.config);
  if (!resolved.candidate) return resolved;
  const ErasedKernel* kernel = resolved.candidate->kernel;
  const auto kernels = competitors(state, call);
  const bool competes = std::any_of(kernels.begin(), kernels.end(), [&](const auto* entry) {
    return entry->kernel.get() == kernel;
  });
  if (!competes)
    return {std::nullopt,
            str(row.kernel, ": other kernels than the reference support the problem by now")};
  const auto bad = state.store().quarantined(call.row_key(), row.kernel, kernel->version(),
                                             to_text(kernel->params(resolved.candidate->config)));
  if (bad) return {std::nullopt, str(describe(*resolved.candidate), " is quarantined: ", *bad)};
  return resolved;
}

std::optional<ConfigRow> tuned_row(State& state, Call& call) {
  for (ConfigStore::Hit& hit : state.store().find(call.row_key(), "")) {
    const Resolved resolved = validate_row(state, call, hit.row);
    if (!resolved.candidate) continue;
    if (why_stale(hit.row, *resolved.candidate->kernel, call.info()).empty()) return hit.row;
  }
  return std::nullopt;
}

std::string describe_row(const ConfigStore::Hit& hit) {
  std::string text = str("a ", to_string(hit.layer), " row", hit.path.empty() ? "" : " of ",
                         hit.path, ", noise grade ", to_string(hit.row.noise));
  if (hit.row.median_us > 0 && hit.row.default_us > 0) {
    const double speedup = std::round(100 * hit.row.default_us / hit.row.median_us) / 100;
    const std::string_view objective = objective_of(hit.row.key.platform);
    text += !objective.empty()
                ? str(", ", std::round(100 / speedup), " % of the default's ", objective)
            : speedup == 1 ? ", as fast as the default"
                           : str(", ", speedup, " times as fast as the default");
  }
  if (hit.bucket) text += str("; tuned for a neighbour: ", hit.row.key.problem);
  return text;
}

Answer ask_pin(State& state, Call& call) {
  if (!call.policy.use_databases) return Answer::not_asked("the policy does not read databases");
  const std::optional<PinRow> pin = state.store().find_pin(call.row_key());
  if (!pin) return Answer::miss("no pin for this problem");
  const Resolved resolved = resolve_row(state, call, pin->kernel, pin->config);
  if (resolved.candidate) {
    return Answer::chosen(Tier::kPin, *resolved.candidate,
                          pin->reason.empty() ? "pinned" : str("pinned: ", pin->reason));
  }
  return Answer::refused(str(pin->kernel, " ", pin->config), resolved.reason);
}

Answer select_pin(State& state, Call& call) {
  Answer answer = ask_pin(state, call);
  if (answer.outcome != TierNote::Outcome::kRefused) return answer;
  log_once(LogLevel::kWarning,
           str("the pin for ", call.describe(), " is refused: ", answer.reason));
  emit_refusal(state, call, Tier::kPin, answer.reason);
  return answer;
}

namespace {

/// What a row says, or nothing, with the reason in `refusal`. A row of the bucket is made the
/// problem's.
std::optional<Answer> answer_of(State& state, Call& call, ConfigStore::Hit& hit,
                                std::string& refusal) {
  std::string left;
  if (hit.bucket) {
    Transfer transfer = transferred(state, call, hit.row);
    if (!transfer.why_not.empty()) {
      refusal = str("tuned for ", hit.row.key.problem, ": ", transfer.why_not);
      return std::nullopt;
    }
    left = describe_left(transfer);
    hit.row = std::move(transfer.row);
  }
  const bool was_bound = std::exchange(call.is_bound, false);
  const Resolved resolved = validate_row(state, call, hit.row);
  if (call.is_bound && !hit.bucket) call.is_tuned_above_limit = true;
  call.is_bound = call.is_bound || was_bound;
  if (!resolved.candidate) {
    refusal = resolved.reason;
    return std::nullopt;
  }
  const std::string stale = why_stale(hit.row, *resolved.candidate->kernel, call.info());
  if (!stale.empty() && !call.policy.allow_stale) {
    refusal = str(describe_row(hit), ", is stale: ", stale);
    return std::nullopt;
  }
  Answer answer = Answer::chosen(Tier::kPersistent, *resolved.candidate, describe_row(hit) + left);
  answer.choice->bucket_hit = hit.bucket;
  if (!stale.empty()) {
    answer.choice->stale = true;
    answer.stale = true;
    answer.is_to_be_tuned_again = hit.layer == Layer::kUser && !hit.bucket;
    answer.reason += "; stale: " + stale;
  }
  return answer;
}

}  // namespace

Answer ask_persistent(State& state, Call& call) {
  if (!call.policy.use_databases) return Answer::not_asked("the policy does not read databases");
  std::vector<ConfigStore::Hit> hits = state.store().find(call.row_key(), call.bucket());
  sort_by_rank(state, hits);
  std::vector<std::string> refusals;
  for (std::size_t i = 0; i < hits.size(); ++i) {
    std::string refusal;
    if (std::optional<Answer> answer = answer_of(state, call, hits[i], refusal)) {
      answer->outranked = rows_after(state, hits, i);
      answer->refusals = std::move(refusals);
      return *std::move(answer);
    }
    refusals.push_back(std::move(refusal));
  }
  if (refusals.empty()) return Answer::miss("no row for this problem or its bucket");
  Answer answer = Answer::refused(
      "", str(count_text(refusals.size(), "row was", "rows were"), " refused: ", refusals.front()));
  answer.refusals = std::move(refusals);
  return answer;
}

Answer select_persistent(State& state, Call& call) {
  Answer answer = ask_persistent(state, call);
  state.counters.refused_rows += answer.refusals.size();
  for (const std::string& reason : answer.refusals) {
    log(LogLevel::kDebug, str(call.describe(), ": ", reason));
    emit_refusal(state, call, Tier::kPersistent, reason);
  }
  return answer;
}

Answer explain_persistent(State& state, Call& call) {
  Answer answer = ask_persistent(state, call);
  if (answer.choice || !call.policy.use_databases) return answer;
  for (const ConfigStore::Hit& hit : state.store().find_elsewhere(call.row_key())) {
    answer.outranked.push_back(str(describe_row(hit), ", for device class ",
                                   hit.row.key.device_class, " and platform ",
                                   hit.row.key.platform));
  }
  return answer;
}

}  // namespace chain
}  // namespace attune
