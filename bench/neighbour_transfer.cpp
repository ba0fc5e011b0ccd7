// What a row is worth to a problem beside the one that it was tuned for.
//
//   neighbour_transfer [--problems N] [--seed N] [--budget MS] [--unlike] >pairs.jsonl
//
// Draws problems whose bucketed field (T, and B of decoding) lies between two powers of two, on the
// host. Each of the two is tuned for `budget`, and so is the problem itself; then four configs of
// the problem are timed in turns, and a line says of each how long it took:
//
//   default   the heuristic's
//   row       the neighbour's, as it is stored
//   by_axis   the row's, but for the axes in which the two problems' defaults differ: these as the
//             default here; the row's as it is where kernels differ
//   tuned     what the problem's own tuning found
//
// A time is the fourth fastest of forty: what a config takes while nobody else has its core. Where
// all four are one config there is nothing to time, and the times are 0. With --unlike it measures
// only pairs of problems for which the heuristic chooses differently, and counts only those.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <vector>

#include <attune/core/params.hpp>
#include <attune/tuner/tuner.hpp>

#include "contest.hpp"

namespace {

using namespace attune;

constexpr int kRounds = 40;

struct Drawn {
  std::string op;
  std::string others;  // the fields but for the bucketed one
  std::string field;   // "T", or "B" of decoding
  std::int64_t size = 0;

  std::string text(std::int64_t of) const { return str(others, ' ', field, '=', of); }
};

Drawn draw(std::mt19937_64& random) {
  const auto one_of = [&](std::vector<std::string> values) {
    return values[random() % values.size()];
  };
  Drawn drawn;
  drawn.op = one_of({"recurrent_attention", "recurrent_attention", "recurrent_attention.backward",
                     "recurrent_decode"});
  const bool decodes = drawn.op == "recurrent_decode";
  const std::string heads = one_of({"1", "2", "4", "8", "16"});
  const std::string size = one_of({"32", "64", "128"});
  drawn.others = str("H=", heads, " Hkv=", heads, " K=", size, " V=", size,
                     " gate=", one_of({"none", "g", "gk"}), " dtype=", one_of({"f32", "bf16"}));
  if (decodes) drawn.others += " S=64";
  drawn.field = decodes ? "B" : "T";
  const int octaves = static_cast<int>(random() % (decodes ? 4 : 7)) + (decodes ? 2 : 5);
  const std::int64_t least = std::int64_t{1} << octaves;
  drawn.size = least + 1 + static_cast<std::int64_t>(random() % (least - 1));
  return drawn;
}

/// What a config takes while nobody else has its core; 0 when it was not timed.
double undisturbed_us(const bench::Contender& contender) {
  std::vector<double> sorted = contender.samples_us;
  if (sorted.empty()) return 0;
  std::sort(sorted.begin(), sorted.end());
  return sorted[sorted.size() / 10];
}

Choice choice_of(const Candidate& candidate) {
  Choice choice;
  choice.kernel = candidate.kernel;
  choice.config = candidate.config;
  return choice;
}

std::string text(const Choice& choice) {
  return str(choice.kernel->name(), ' ', config_text(*choice.kernel, choice.config));
}

class Bench {
 public:
  explicit Bench(std::chrono::milliseconds budget) : budget_(budget) {}

  /// How many pairs of the problem with a neighbour were measured.
  int compare(const Drawn& drawn, bool unlike_only) const {
    const OpInfo& op = context_->registry().op(drawn.op);
    const AnyProblem problem = op.parse(parse_params(drawn.text(drawn.size), ' '));
    const Choice guess = guess_for(problem);
    std::optional<Choice> own;
    std::int64_t above = 1;
    while (above < drawn.size) above *= 2;
    int pairs = 0;
    for (const std::int64_t size : {above, above / 2}) {
      const AnyProblem near = op.parse(parse_params(drawn.text(size), ' '));
      const Choice guess_there = guess_for(near);
      if (unlike_only && text(guess) == text(guess_there)) continue;
      const Tuned row = tuned(op, near, guess_there);
      if (!fits(problem, row.choice)) continue;
      if (!own) own = tuned(op, problem, guess).choice;
      ++pairs;
      bench::Contender all[] = {
          {guess}, {row.choice}, {by_axis(problem, guess, guess_there, row.choice)}, {*own}};
      const bool differ = std::ranges::any_of(
          all, [&](const bench::Contender& each) { return text(each.choice) != text(guess); });
      if (differ) bench::contest(bench::Copies(op, problem, cpu_device()), all, kRounds);
      print(drawn, size, row.gain, guess_there, all);
    }
    return pairs;
  }

 private:
  Choice guess_for(ProblemRef problem) const {
    return context_->select(problem, {.device = &cpu_device()});
  }

  static bool fits(ProblemRef problem, const Choice& choice) {
    const DeviceInfo& host = cpu_device().info();
    return choice.kernel->erased_supports(problem, host) &&
           choice.kernel->erased_fits(problem, host, choice.config);
  }

  /// `all`: default, row, by_axis, tuned.
  static void print(const Drawn& drawn, std::int64_t near, double gain, const Choice& guess_there,
                    std::span<const bench::Contender> all) {
    std::printf(
        "{\"op\": \"%s\", \"problem\": \"%s\", \"near\": %lld, \"gain\": %.4f, "
        "\"default_there\": \"%s\"",
        drawn.op.c_str(), drawn.text(drawn.size).c_str(), static_cast<long long>(near), gain,
        text(guess_there).c_str());
    constexpr const char* kNames[] = {"default", "row", "by_axis", "tuned"};
    for (std::size_t i = 0; i < all.size(); ++i) {
      std::printf(", \"%s\": \"%s\", \"%s_us\": %.3f", kNames[i], text(all[i].choice).c_str(),
                  kNames[i], undisturbed_us(all[i]));
    }
    std::printf("}\n");
    std::fflush(stdout);
  }

  struct Tuned {
    Choice choice;
    double gain = 1;  // the default's time over the choice's
  };

  Tuned tuned(const OpInfo& op, ProblemRef problem, const Choice& guess) const {
    const Device& host = cpu_device();
    auto kernels = context_->registry().kernels(op.name, kAutoPlatform, "cpu");
    std::erase_if(kernels, [&](const RegisteredKernel* entry) {
      return entry->at.platform.view() == kReferencePlatform ||
             !entry->kernel->erased_supports(problem, host.info());
    });
    std::stable_partition(kernels.begin(), kernels.end(), [&](const RegisteredKernel* entry) {
      return entry->kernel.get() == guess.kernel;
    });
    Tuner::Settings settings;
    settings.budget = budget_;
    const TuneResult result = Tuner(settings).tune({.op = &op,
                                                    .problem = problem,
                                                    .device = &host,
                                                    .kernels = kernels,
                                                    .incumbent = {guess.kernel, guess.config}});
    if (result.winner < 0) return {guess};
    const auto trial = [&](std::int64_t i) { return result.trials[static_cast<std::size_t>(i)]; };
    const Trial winner = trial(result.winner);
    const double usual = result.default_trial < 0 ? 0 : trial(result.default_trial).median_us;
    return {choice_of(winner.candidate),
            winner.median_us > 0 && usual > 0 ? usual / winner.median_us : 1};
  }

  static Choice by_axis(ProblemRef problem, const Choice& guess, const Choice& guess_there,
                        const Choice& row) {
    if (row.kernel != guess_there.kernel || row.kernel != guess.kernel) return row;
    Params params = row.kernel->params(row.config);
    const Params here = row.kernel->params(guess.config);
    const Params there = row.kernel->params(guess_there.config);
    for (Param& param : params) {
      const std::string* value = find_param(here, param.name);
      if (*value != *find_param(there, param.name)) param.value = *value;
    }
    Choice moved = row;
    moved.config = row.kernel->parse(params);
    return fits(problem, moved) ? moved : guess;
  }

  std::unique_ptr<Context> context_ = make_context({.policy = Policy::kHeuristic, .database = ""});
  std::chrono::milliseconds budget_;
};

/// The number behind a flag.
std::int64_t number(const std::vector<std::string>& words, const char* flag, std::int64_t usual) {
  const auto found = std::find(words.begin(), words.end(), flag);
  return found == words.end() || found + 1 == words.end() ? usual
                                                          : std::atoll((found + 1)->c_str());
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> words(argv + 1, argv + argc);
  try {
    std::mt19937_64 random(static_cast<std::uint64_t>(number(words, "--seed", 1)));
    const Bench bench{std::chrono::milliseconds(number(words, "--budget", 1000))};
    const bool unlike_only = std::ranges::count(words, "--unlike") > 0;
    std::int64_t left = number(words, "--problems", 60);
    while (left > 0) {
      if (bench.compare(draw(random), unlike_only) > 0) --left;
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "neighbour_transfer: %s\n", error.what());
    return 1;
  }
}
