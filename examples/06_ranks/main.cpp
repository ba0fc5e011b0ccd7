// A sequence over ranks: what no rank holds alone is attended to as if one did.
//
//   06_ranks [--ranks P] [--tokens T]     P threads on this machine's CPU; 2 and 16,384
//   mpirun -n P 06_ranks [--tokens T]     P processes, where the example was built with MPI
//
// The ranks tune what they are about to run together, each its part; they agree that they choose
// alike; each walks its own tokens, forward and backward, from states that come from the others.
// The first rank then does all of it by one walk, and compares.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <thread>
#include <vector>

#include <attune/attune.hpp>
#include <attune/distributed/thread_exchange.hpp>
#include <attune/distributed/tune_together.hpp>
#include <attune/ops/distributed_attention.hpp>
#if ATTUNE_EXAMPLE_MPI
#include <attune/distributed/mpi.hpp>
#endif

namespace {

using namespace attune;
using distributed::Exchange;
using ops::distributed::SequenceLayout;
using Clock = std::chrono::steady_clock;
using Floats = std::vector<float>;

constexpr std::int64_t kHeads = 4, kWidth = 64;

/// Numbers in [-1, 1) that are the same for a token on whichever rank it is.
Floats tokens_of(int stream, std::int64_t first, std::int64_t count, std::int64_t width) {
  Floats values(static_cast<std::size_t>(count * width));
  auto bits = static_cast<std::uint32_t>(first * width) * 747796405U + std::uint32_t(stream);
  for (float& value : values) {
    bits += 747796405U;
    std::uint32_t mixed = bits;  // the rounds of MurmurHash3's finaliser
    mixed = (mixed ^ mixed >> 16) * 0x85ebca6bU;
    mixed = (mixed ^ mixed >> 13) * 0xc2b2ae35U;
    value = static_cast<float>(static_cast<std::int32_t>(mixed ^ mixed >> 16)) * 0x1p-31F;
  }
  return values;
}

/// Tensors of some tokens, [1, T, H, D].
struct Tokens {
  Tokens(std::int64_t first, std::int64_t count)
      : shape{1, count, kHeads, kWidth},
        q(tokens_of(1, first, count, kHeads * kWidth)),
        k(tokens_of(2, first, count, kHeads * kWidth)),
        v(tokens_of(3, first, count, kHeads * kWidth)),
        d_o(tokens_of(4, first, count, kHeads * kWidth)),
        g(tokens_of(5, first, count, kHeads)) {
    for (float& decay : g) decay = -0.005F * (decay + 1);  // a state remembers hundreds of tokens
    for (Floats* const output : {&o, &dq, &dk, &dv}) output->resize(q.size());
    dg.resize(g.size());
  }

  ConstTensorView view(const Floats& values) const { return {values.data(), shape}; }
  TensorView view(Floats& values) const { return {values.data(), shape}; }
  ops::RecurrentAttentionOptions options(Context& context) const {
    ops::RecurrentAttentionOptions given;
    given.g = ConstTensorView(g.data(), {1, shape[1], kHeads});
    given.call.context = &context;
    return given;
  }
  ops::RecurrentAttentionGradientOutputs gradients() {
    return {.dq = view(dq),
            .dk = view(dk),
            .dv = view(dv),
            .dg = TensorView(dg.data(), {1, shape[1], kHeads})};
  }

  Extents shape;
  Floats q, k, v, d_o, g;
  Floats o, dq, dk, dv, dg;
};

/// Both passes of a rank, with what they need.
class RankPlans {
 public:
  RankPlans(Tokens& tokens, Context& context, const SequenceLayout& layout, Exchange& exchange)
      : forward_(plan_recurrent_attention(tokens.view(tokens.q), tokens.view(tokens.k),
                                          tokens.view(tokens.v), tokens.options(context), layout,
                                          exchange)),
        backward_(plan_recurrent_attention_backward(
            tokens.view(tokens.q), tokens.view(tokens.k), tokens.view(tokens.v),
            {.d_o = tokens.view(tokens.d_o)}, tokens.options(context), layout, exchange)),
        carried_(DType::kF32, forward_.carried_shape()),
        workspace_(DType::kF32,
                   {std::int64_t(std::max(forward_.workspace_bytes(), backward_.workspace_bytes()) /
                                 sizeof(float))}) {}

  std::vector<distributed::WantedProblem> wanted() const {
    std::vector<distributed::WantedProblem> all;
    for (const AnyProblem& problem : forward_.problems()) all.push_back({problem});
    for (const AnyProblem& problem : backward_.problems()) all.push_back({problem});
    return all;
  }
  std::size_t sent_bytes() const { return forward_.sent_bytes() + backward_.sent_bytes(); }

  /// The carried state is what the backward pass needs of the forward pass.
  void run(Tokens& tokens, Context& context, Exchange& exchange) {
    const auto options = tokens.options(context);
    const ConstTensorView q = tokens.view(tokens.q), k = tokens.view(tokens.k),
                          v = tokens.view(tokens.v);
    const std::span<std::byte> memory(static_cast<std::byte*>(workspace_.view().data),
                                      workspace_.bytes());
    forward_.launch(ops::recurrent_attention_args({.o = tokens.view(tokens.o)}, q, k, v, options),
                    carried_.view(), exchange, nullptr, memory);
    backward_.launch(ops::recurrent_attention_backward_args(
                         tokens.gradients(), q, k, v, {.d_o = tokens.view(tokens.d_o)}, options),
                     carried_.view(), exchange, nullptr, memory);
  }

 private:
  ops::distributed::SequencePlan<ops::RecurrentAttention> forward_;
  ops::distributed::SequencePlan<ops::RecurrentAttentionBackward> backward_;
  Tensor carried_, workspace_;
};

double milliseconds_since(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

/// RMS of the difference, relative to that of `expected`.
double error_of(const Floats& got, const Floats& expected) {
  double difference = 0, size = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const double d = double(got[i]) - double(expected[i]);
    difference += d * d;
    size += double(expected[i]) * double(expected[i]);
  }
  return std::sqrt(difference / size);
}

/// All ranks' pieces of a tensor, on every rank; ranks have as many tokens each.
Floats gathered(const Floats& own, Exchange& exchange) {
  Floats all(own.size() * std::size_t(exchange.size()));
  exchange.all_gather(own.data(), all.data(), own.size() * sizeof(float), nullptr);
  return all;
}

/// Holds what the ranks have computed against one walk. Whether it is the same.
bool compare(Tokens& own, std::int64_t tokens, Context& context, Exchange& exchange) {
  const Floats o = gathered(own.o, exchange), dq = gathered(own.dq, exchange),
               dk = gathered(own.dk, exchange), dv = gathered(own.dv, exchange),
               dg = gathered(own.dg, exchange);
  if (exchange.rank() != 0) return true;
  Tokens whole(0, tokens);
  const auto options = whole.options(context);
  const ConstTensorView q = whole.view(whole.q), k = whole.view(whole.k), v = whole.view(whole.v);
  const auto start = Clock::now();
  ops::recurrent_attention_into({.o = whole.view(whole.o)}, q, k, v, options);
  ops::recurrent_attention_backward_into(whole.gradients(), q, k, v, {.d_o = whole.view(whole.d_o)},
                                         options);
  std::printf("one walk: %.1f ms\n", milliseconds_since(start));
  const double errors[] = {error_of(o, whole.o), error_of(dq, whole.dq), error_of(dk, whole.dk),
                           error_of(dv, whole.dv), error_of(dg, whole.dg)};
  std::printf("difference: o %.1e, dq %.1e, dk %.1e, dv %.1e, dg %.1e\n", errors[0], errors[1],
              errors[2], errors[3], errors[4]);
  return *std::max_element(errors, errors + 4) <= 4e-5 && errors[4] <= 2e-4;
}

/// All that one rank does. Whether it ended as it should.
bool run_rank(Exchange& exchange, std::int64_t tokens) {
  const auto context = make_context({.policy = Policy::kDb, .database = ""});
  const std::int64_t offsets[] = {0, tokens};
  const SequenceLayout layout(offsets, ops::distributed::even_ranges(tokens, exchange.size()),
                              exchange.rank());
  const ops::distributed::TokenRange range = layout.fragments()[0].tokens;
  Tokens own(range.begin, range.end - range.begin);

  // Every rank wants all problems, as tune_together() shares the list; those of other ranks are its
  // own but for whether a sequence begins or ends there.
  const auto wanted = RankPlans(own, *context, layout, exchange).wanted();
  const auto report = distributed::tune_together(
      exchange, *context, cpu_device(), wanted,
      {.problem = std::chrono::milliseconds(300), .in_all = std::chrono::seconds(3)});
  std::printf("rank %d of %d: tokens %lld to %lld, tuned %zu problems; %s\n", exchange.rank(),
              exchange.size(), static_cast<long long>(range.begin),
              static_cast<long long>(range.end), report.tuned, report.agreement.text().c_str());
  if (!report.agreement.equal()) return false;

  RankPlans plans(own, *context, layout, exchange);
  plans.run(own, *context, exchange);  // once for the caches
  const auto start = Clock::now();
  plans.run(own, *context, exchange);
  if (exchange.rank() == 0) {
    std::printf("%d ranks: %.1f ms forward and backward; each sends %.2f MB, whatever T is\n",
                exchange.size(), milliseconds_since(start), 1e-6 * double(plans.sent_bytes()));
  }
  return compare(own, tokens, *context, exchange);
}

/// Ranks that are threads of this process.
bool run_threads(int ranks, std::int64_t tokens) {
  const auto exchanges = distributed::ThreadExchange::make(ranks);
  std::vector<char> right(exchanges.size());
  {
    std::vector<std::jthread> threads;
    for (std::size_t rank = 0; rank < exchanges.size(); ++rank) {
      threads.emplace_back([&, rank] {
        try {
          right[rank] = run_rank(*exchanges[rank], tokens);
        } catch (const Error& error) {
          std::fprintf(stderr, "rank %zu: %s\n", rank, error.what());
        }
      });
    }
  }
  return std::count(right.begin(), right.end(), 1) == ranks;
}

#if ATTUNE_EXAMPLE_MPI
/// Whether a launcher of MPI processes has started this one.
bool is_mpi_process() {
  return std::getenv("OMPI_COMM_WORLD_SIZE") != nullptr || std::getenv("PMI_SIZE") != nullptr;
}
#endif

std::int64_t option(int argc, char** argv, std::string_view name, std::int64_t otherwise) {
  for (int i = 1; i + 1 < argc; ++i) {
    if (argv[i] == name) return std::atoll(argv[i + 1]);
  }
  return otherwise;
}

}  // namespace

int main(int argc, char** argv) {
  const std::int64_t tokens = option(argc, argv, "--tokens", 16'384);
  const auto ranks = static_cast<int>(option(argc, argv, "--ranks", 2));
  if (ranks < 1 || tokens < ranks || tokens % ranks != 0) {
    std::fprintf(stderr, "--tokens: %lld, expected a multiple of --ranks\n",
                 static_cast<long long>(tokens));
    return 2;
  }
#if ATTUNE_EXAMPLE_MPI
  if (is_mpi_process()) {
    MPI_Init(&argc, &argv);
    distributed::MpiExchange exchange(MPI_COMM_WORLD);
    const bool right = tokens % exchange.size() == 0 && run_rank(exchange, tokens);
    MPI_Finalize();
    return right ? 0 : 1;
  }
#endif
  return run_threads(ranks, tokens) ? 0 : 1;
}
