// How good a choice is for a problem that nobody tuned: of its bucket, of the nearest tuned
// neighbour, or the heuristic's, beside the choice of a tuning of its own.
//
//   held_out OP "SPEC WITHOUT B AND T" [PROBLEMS [MILLISECONDS [SEED]]]
//
// Tunes B = 1, 8 and T = 256, 1024, 4096, then draws PROBLEMS (50) with B in 1..16 and T in
// 128..8192, log-uniformly (others with another SEED than 17), and asks first, tunes (each for
// MILLISECONDS, 500) and compares afterwards, in alternation. Runs on gpu:0 where there is one,
// else on the CPU.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>
#include <vector>

#include <attune/core/params.hpp>

#include "contest.hpp"

namespace {

using namespace attune;
using bench::Contender;

constexpr int kRounds = 15;

struct Subject {
  const OpInfo* op;
  const Device* device;
  std::string rest;  // of the problem
  Tuner::Settings settings;

  AnyProblem problem(std::int64_t batch, std::int64_t tokens) const {
    return op->parse(parse_params(str("B=", batch, " T=", tokens, " ", rest), ' '));
  }
};

/// "exact", "bucket", "neighbour" or "heuristic", from what explain says.
std::string source_of(const Context& context, ProblemRef problem, const Request& request) {
  for (const TierNote& note : context.explain(problem, request).notes) {
    if (note.outcome != TierNote::Outcome::kChosen) continue;
    if (note.tier == Tier::kPersistent)
      return note.reason.find("tuned for a neighbour") == std::string::npos ? "exact" : "bucket";
    return note.reason.find("tuned neighbour, ") == std::string::npos ? "heuristic" : "neighbour";
  }
  return "?";
}

/// Tuned / untuned and tuned / heuristic: 1 is as good as tuned.
struct Outcome {
  std::string source;
  double untuned = 0, heuristic = 0;
};

Outcome compare(Context& context, const Context& plain, const Subject& subject,
                ProblemRef problem) {
  const Request request{.device = subject.device};
  Outcome outcome;
  outcome.source = source_of(context, problem, request);
  const Choice untuned = context.select(problem, request);
  const Choice heuristic =
      plain.select(problem, {.device = plain.registry().find_device(subject.device->info().id)});
  const Choice tuned = chain_of(context).tune(problem, request, subject.settings).choice;
  const bench::Copies copies(*subject.op, problem, *subject.device);
  std::vector<Contender> contenders;
  for (const Choice& choice : {tuned, untuned, heuristic}) {
    contenders.push_back({choice});
  }
  bench::contest(copies, contenders, kRounds);
  // A tuning that lost to a guess found nothing better than the guess.
  const double best = contenders[0].median_us();
  outcome.untuned = std::max(1.0, contenders[1].median_us() / best);
  outcome.heuristic = std::max(1.0, contenders[2].median_us() / best);
  chain_of(context).forget(problem, request);
  return outcome;
}

void summarize(const std::vector<Outcome>& outcomes, const char* source) {
  int count = 0;
  int near = 0;
  int heuristic_near = 0;
  double log_untuned = 0;
  double log_heuristic = 0;
  for (const Outcome& outcome : outcomes) {
    if (*source != '\0' && outcome.source != source) continue;
    ++count;
    near += outcome.untuned <= 1.05 ? 1 : 0;
    heuristic_near += outcome.heuristic <= 1.05 ? 1 : 0;
    log_untuned += std::log(outcome.untuned);
    log_heuristic += std::log(outcome.heuristic);
  }
  if (count == 0) return;
  std::printf("%-10s %3d problems: within 5 %% of tuned %3d (heuristic %3d); mean %.3f (%.3f)\n",
              *source == '\0' ? "all" : source, count, near, heuristic_near,
              std::exp(log_untuned / count), std::exp(log_heuristic / count));
}

int run(const std::string& op, const std::string& rest, int problems, int milliseconds,
        unsigned seed) {
  const std::string path = "/tmp/attune_held_out." + std::to_string(std::random_device()()) + ".db";
  const auto context = make_context({.policy = Policy::kDb, .database = path});
  const auto plain = make_context({.policy = Policy::kHeuristic, .database = ""});
  Subject subject{&context->registry().op(op), context->registry().devices().back(), rest, {}};
  subject.settings.budget = std::chrono::milliseconds(milliseconds);
  for (const int batch : {1, 8}) {
    for (const int tokens : {256, 1024, 4096}) {
      chain_of(*context).tune(subject.problem(batch, tokens), {.device = subject.device},
                              subject.settings);
    }
  }
  std::mt19937 random(seed);
  std::uniform_real_distribution<double> octave(0, 1);
  std::vector<Outcome> outcomes;
  for (int i = 0; i < problems; ++i) {
    const auto batch = static_cast<std::int64_t>(std::exp2(4 * octave(random)));
    const auto tokens = static_cast<std::int64_t>(std::exp2(7 + 6 * octave(random)));
    outcomes.push_back(compare(*context, *plain, subject, subject.problem(batch, tokens)));
    const Outcome& outcome = outcomes.back();
    std::printf("B=%-3lld T=%-5lld %-10s %.3f   heuristic %.3f\n", static_cast<long long>(batch),
                static_cast<long long>(tokens), outcome.source.c_str(), outcome.untuned,
                outcome.heuristic);
    std::fflush(stdout);
  }
  for (const char* source : {"", "exact", "bucket", "neighbour", "heuristic"})
    summarize(outcomes, source);
  std::remove(path.c_str());
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) {
    std::fprintf(stderr, "usage: held_out OP \"SPEC\" [PROBLEMS [MILLISECONDS [SEED]]]\n");
    return 2;
  }
  try {
    return run(argv[1], argv[2], argc > 3 ? std::atoi(argv[3]) : 50,
               argc > 4 ? std::atoi(argv[4]) : 500,
               argc > 5 ? static_cast<unsigned>(std::atoi(argv[5])) : 17);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "held_out: %s\n", error.what());
    return 5;
  }
}
