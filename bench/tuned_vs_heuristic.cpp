// Whether tuning was worth it, and never harmful: the stored choice of each problem beside the
// heuristic's, in a process that did not tune it.
//
//   ATTUNE_DB=tuned.db tuned_vs_heuristic OP "SPEC" "SPEC" ...
//
// Runs on gpu:0 where there is one, else on the CPU. Samples alternate; a round's ratio is tuned /
// heuristic. Printed are the median ratio and its 99 % confidence interval (order statistics of the
// rounds). Exits 1 when an interval lies above 1.01.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include <attune/attune.hpp>
#include <attune/core/params.hpp>

namespace {

using namespace attune;

constexpr int kRounds = 60;
constexpr double kSampleUs = 2000;
constexpr double kHarm = 1.01;
constexpr double kCachesToRotateOver = 4;  // as the tuner does
constexpr double kMostCopies = 64;

/// One problem's tensors, several times over, so that no launch finds its own in the cache.
class Copies {
 public:
  Copies(const OpInfo& op, ProblemRef problem, const Device& device) : device_(&device) {
    const bool on_host = device.info().id == cpu_device().info().id;
    const double cache = on_host ? 0 : static_cast<double>(device.info().l2_bytes);
    const double wanted = std::ceil(kCachesToRotateOver * cache / std::max(op.bytes(problem), 1.0));
    const int count = static_cast<int>(std::clamp(wanted, 1.0, kMostCopies));
    for (int i = 0; i < count; ++i) cases_.push_back(op.make_case(problem, device, 1));
    for (const auto& each : cases_) each->reset(std::byte{0});
  }

  ProblemRef problem() const { return cases_.front()->problem(); }

  double time_us(const Choice& choice, Tensor& workspace, int repeats) const {
    const auto launch = [&](void* stream, int repeat) {
      const Case& on = *cases_[static_cast<std::size_t>(repeat) % cases_.size()];
      choice.kernel->erased_run(
          on.problem(), on.args(), choice.config,
          {stream, {static_cast<std::byte*>(workspace.view().data), workspace.bytes()}});
    };
    return device_->time_us(launch, repeats) / repeats;
  }

 private:
  const Device* device_;
  std::vector<std::unique_ptr<Case>> cases_;
};

struct Contender {
  Choice choice;
  Tensor workspace;
  double us = 0;
};

Contender contender(const Choice& choice, ProblemRef problem, const Device& device) {
  const std::size_t bytes = choice.kernel->erased_workspace_bytes(problem, choice.config);
  return {choice, Tensor(DType::kI64, {static_cast<std::int64_t>(bytes / 8 + 1)}, device)};
}

struct Interval {
  double low = 0, median = 0, high = 0;
};

Interval interval_99(std::vector<double> ratios) {
  std::sort(ratios.begin(), ratios.end());
  const auto n = static_cast<double>(ratios.size());
  const double half_width = 2.576 * std::sqrt(n) / 2;  // of the median's rank
  const auto at = [&](double rank) {
    return ratios[static_cast<std::size_t>(std::clamp(rank, 0.0, n - 1))];
  };
  return {at(n / 2 - half_width), at(n / 2), at(n / 2 + half_width)};
}

Interval compare(const Copies& copies, Contender& tuned, Contender& heuristic) {
  for (Contender* each : {&tuned, &heuristic}) {
    each->us = copies.time_us(each->choice, each->workspace, 3);
  }
  const int repeats = static_cast<int>(std::ceil(kSampleUs / std::min(tuned.us, heuristic.us)));
  std::vector<double> ratios;
  std::vector<double> samples[2];
  for (int round = 0; round < kRounds; ++round) {
    double us[2] = {};
    for (int turn = 0; turn < 2; ++turn) {
      const int which = (turn + round) % 2;
      Contender& each = which == 0 ? tuned : heuristic;
      us[which] = copies.time_us(each.choice, each.workspace, repeats);
      samples[which].push_back(us[which]);
    }
    ratios.push_back(us[0] / us[1]);
  }
  tuned.us = interval_99(samples[0]).median;
  heuristic.us = interval_99(samples[1]).median;
  return interval_99(ratios);
}

/// Whether the stored choice is no slower than the heuristic's.
bool is_harmless(const Context& tuned, const Context& untuned, const OpInfo& op,
                 const std::string& text) {
  const std::vector<const Device*>& devices = tuned.registry().devices();
  const Device& device = *devices.back();  // the host is the first
  const AnyProblem problem = op.parse(parse_params(text, ' '));
  const Request request{.device = &device};
  const Choice stored = tuned.select(problem, request);
  const Choice guess =
      untuned.select(problem, {.device = untuned.registry().find_device(device.info().id)});
  if (stored.tier != Tier::kPersistent) {
    std::printf("%-72s not in the database\n", text.c_str());
    return true;
  }
  const Copies copies(op, problem, device);
  Contender ours = contender(stored, problem, device);
  Contender theirs = contender(guess, problem, device);
  const Interval ratio = compare(copies, ours, theirs);
  const bool harm = ratio.low > kHarm;
  std::printf("%-72s %9.1f us, heuristic %9.1f us, ratio %.3f [%.3f, %.3f]%s\n", text.c_str(),
              ours.us, theirs.us, ratio.median, ratio.low, ratio.high, harm ? "  SLOWER" : "");
  return !harm;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) {
    std::fprintf(stderr, "usage: tuned_vs_heuristic OP \"SPEC\" ...\n");
    return 2;
  }
  try {
    const auto tuned = make_context({.policy = Policy::kDb});
    const auto untuned = make_context({.policy = Policy::kHeuristic, .database = ""});
    const OpInfo& op = tuned->registry().op(argv[1]);
    bool harmless = true;
    for (int i = 2; i < argc; ++i) harmless &= is_harmless(*tuned, *untuned, op, argv[i]);
    return harmless ? 0 : 1;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "tuned_vs_heuristic: %s\n", error.what());
    return 5;
  }
}
