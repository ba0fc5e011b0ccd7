// Sequences over the GPUs of a host: how much sooner they are done than on one, and whether the
// results are the same.
//
//   ranks [--ranks P] [--tokens T,T,..] [--replays N] [--limit SECONDS]
//
//   B = 1, H = 32, K = V = 128, bf16, all inputs of 16 bits, configs of the heuristic. A process a
//   GPU, states by NCCL. Each pass is captured in a graph once, on one GPU with all tokens and on P
//   with their part of them; samples of both alternate. A sample is some replays, one behind the
//   other. Of P GPUs the slowest one's time counts, of one GPU the fastest one's; printed are the
//   medians. Errors are against what one GPU makes of all tokens, of 4,096 tokens at each end of
//   each part. The last column says whether N replays (1,000) left the same bits: of the final
//   state after each, of everything after every 500th.
//
// NVLink multicast (NVLS) is left off. Whoever is not done in time (240 s) is killed.
#include <algorithm>
#include <bit>
#include <charconv>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <string_view>
#include <vector>

#include "gpu_ranks.hpp"
#include "rank_sequences.hpp"

namespace {

using namespace attune;
using namespace attune::bench;
using ops::distributed::SequenceLayout;
using Clock = std::chrono::steady_clock;

constexpr int kSamples = 15;
constexpr std::int64_t kComparedTokens = 4096;

struct Job {
  int ranks = 2;
  std::vector<std::int64_t> tokens{65536, 262144};
  int replays = 1000;
  int limit_s = 240;
};

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

void time_all_gathers(Rank& rank) {
  constexpr int kAtOnce = 20;
  if (rank.is_first())
    std::printf("all-gather of each rank's\n|    bytes | eager us | graph us |\n");
  for (const std::size_t bytes : {64UL << 10, 2UL << 20, 2UL << 20, 16UL << 20, 64UL << 20}) {
    const auto count = static_cast<std::int64_t>(bytes / sizeof(float));
    Tensor send(DType::kF32, {count}, rank.device());
    Tensor recv(DType::kF32, {count * rank.exchange().size()}, rank.device());
    const auto gather = [&] {
      rank.exchange().all_gather(send.view().data, recv.view().data, bytes, rank.stream());
    };
    const Graph one(rank, gather);
    std::vector<double> eager, replayed;
    for (int i = 0; i < kSamples; ++i) {
      rank.wait();
      const auto start = Clock::now();
      for (int n = 0; n < kAtOnce; ++n) gather();
      rank.wait();
      const std::chrono::duration<double, std::micro> took = Clock::now() - start;
      eager.push_back(rank.slowest(took.count() / kAtOnce));
      replayed.push_back(rank.slowest(one.us(kAtOnce)));
    }
    if (!rank.is_first()) continue;
    std::printf("| %8zu | %8.1f | %8.1f |\n", bytes, median(eager), median(replayed));
    std::fflush(stdout);
  }
}

using Bits = std::vector<std::uint16_t>;

Bits bits_of(const Tensor& tensor, std::int64_t first, std::int64_t count) {
  Bits bits(static_cast<std::size_t>(count * kRow));
  const auto* const from = static_cast<const std::uint16_t*>(tensor.view().data) + first * kRow;
  check(cudaMemcpy(bits.data(), from, bits.size() * sizeof(std::uint16_t), cudaMemcpyDeviceToHost),
        "cudaMemcpy");
  return bits;
}

double number_of(std::uint16_t bits) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

/// The largest RMS error of all results, relative to the RMS of what one GPU has, over both ends of
/// this rank's part, which begins at token `first` of the whole.
double error_of(const Tokens& part, const Tokens& whole, std::int64_t first) {
  double largest = 0;
  const std::int64_t tokens = part.q.shape()[1], some = std::min(kComparedTokens, tokens);
  for (std::size_t i = 0; i < part.results().size(); ++i) {
    for (const std::int64_t at : {std::int64_t{0}, tokens - some}) {
      const Bits got = bits_of(*part.results()[i], at, some);
      const Bits expected = bits_of(*whole.results()[i], first + at, some);
      double difference = 0, size = 0;
      for (std::size_t e = 0; e < got.size(); ++e) {
        const double d = number_of(got[e]) - number_of(expected[e]);
        difference += d * d;
        size += number_of(expected[e]) * number_of(expected[e]);
      }
      const double error = std::sqrt(difference / size);
      largest = std::isfinite(error) ? std::max(largest, error) : HUGE_VAL;
    }
  }
  return largest;
}

/// Whether every replay leaves the same bits.
bool replays_alike(const Rank& rank, const Tokens& part, const Graph& graph, int replays) {
  constexpr int kAll = 500;
  const auto state = [&] { return to_host(part.final_state, rank.device()); };
  const auto all = [&] {
    std::vector<Bits> bits;
    for (const Tensor* const result : part.results()) {
      bits.push_back(bits_of(*result, 0, part.q.shape()[1]));
    }
    return bits;
  };
  graph.launch();
  rank.wait();
  const Tensor first_state = state();
  const std::vector<Bits> first = all();
  bool alike = true;
  for (int i = 1; i < replays; ++i) {
    graph.launch();
    rank.wait();
    alike = alike &&
            std::memcmp(state().view().data, first_state.view().data, first_state.bytes()) == 0;
    if (i % kAll == 0 || i + 1 == replays) alike = alike && all() == first;
  }
  return alike;
}

bool measure(Rank& rank, Kind kind, std::int64_t tokens, int replays) {
  const std::int64_t offsets[] = {0, tokens};
  const SequenceLayout layout(offsets,
                              ops::distributed::even_ranges(tokens, rank.exchange().size()),
                              rank.exchange().rank());
  const ops::distributed::TokenRange range = layout.fragments()[0].tokens;
  Tokens all(kind, 0, tokens, rank), own(kind, range.begin, range.end - range.begin, rank);
  Whole whole(all);
  Part part(own, layout);
  const Graph one(rank, [&] { whole.run(); }), many(rank, [&] { part.run(); });
  const int count = static_cast<int>(std::clamp(40000 / one.us(3), 2.0, 40.0));
  const int count_of_all = static_cast<int>(rank.slowest(count));
  std::vector<double> alone, together;
  for (int i = 0; i < kSamples; ++i) {
    alone.push_back(rank.fastest(one.us(count_of_all)));
    together.push_back(rank.slowest(many.us(count_of_all)));
  }
  const double error = rank.slowest(error_of(own, all, range.begin));
  const bool alike = rank.slowest(replays_alike(rank, own, many, replays) ? 0 : 1) == 0;
  if (rank.is_first()) {
    std::printf("| %-22s | %9lld | %9.1f | %9.1f | %5.2fx | %8.1e | %s |\n",
                kNames[static_cast<int>(kind)], static_cast<long long>(tokens), median(alone),
                median(together), median(alone) / median(together), error, alike ? "yes" : "NO");
    std::fflush(stdout);
  }
  constexpr double kMostError = 1e-2;  // two roundings to bf16
  return alike && error <= kMostError;
}

bool measure_all(Rank& rank, const Job& job) {
  if (rank.is_first()) {
    int version = 0;
    ncclGetVersion(&version);
    std::printf("%d x %s, NCCL %d\n", job.ranks, rank.device().info().name.c_str(), version);
  }
  time_all_gathers(rank);
  if (rank.is_first()) {
    std::printf(
        "\n| pass                   |         T |  1 GPU us | %d GPUs us |  ratio |    error | bits |\n",
        job.ranks);
  }
  bool right = true;
  for (const std::int64_t tokens : job.tokens) {
    for (const Kind kind : {Kind::kGamma, Kind::kKeys, Kind::kTraining}) {
      right = measure(rank, kind, tokens, job.replays) && right;
    }
  }
  return right;
}

template <class Number>
bool read_number(std::string_view text, Number& to) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), to);
  return error == std::errc() && end == text.data() + text.size() && to > 0;
}

/// False where the arguments are not as the usage has them.
bool read_arguments(int argc, char** argv, Job& job) {
  for (int i = 1; i < argc; i += 2) {
    if (i + 1 == argc) return false;
    const std::string_view name = argv[i];
    std::string_view value = argv[i + 1];
    bool right = false;
    if (name == "--ranks") right = read_number(value, job.ranks);
    if (name == "--replays") right = read_number(value, job.replays);
    if (name == "--limit") right = read_number(value, job.limit_s);
    if (name == "--tokens") {
      job.tokens.clear();
      for (right = true; right && !value.empty();) {
        const std::size_t comma = std::min(value.find(','), value.size());
        right = read_number(value.substr(0, comma), job.tokens.emplace_back());
        value.remove_prefix(std::min(comma + 1, value.size()));
      }
    }
    if (!right) return false;
  }
  return true;
}

}  // namespace

int main(int argc, char** argv) {
  Job job;
  if (!read_arguments(argc, argv, job)) {
    std::fputs("usage: ranks [--ranks P] [--tokens T,T,..] [--replays N] [--limit SECONDS]\n",
               stderr);
    return 2;
  }
  const bool well =
      on_ranks(job.ranks, job.limit_s, [&](Rank& rank) { return measure_all(rank, job); });
  return well ? 0 : 1;
}
