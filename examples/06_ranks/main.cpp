// A sequence over ranks: what no rank holds alone is attended to as if one did.
//
//   06_ranks [--ranks P] [--tokens T] [--device gpu]   P threads, 2, on one device: the CPU, or the
//                                                      first GPU; 16,384 tokens, or 262,144
//   mpirun -n P 06_ranks [--tokens T]                  P processes, where it was built with MPI
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
#include <attune/distributed/staged_exchange.hpp>
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

/// Tensors of some tokens on a device, [1, T, H, D].
class Tokens {
 public:
  Tokens(std::int64_t first, std::int64_t count, const Device& device)
      : device_(device),
        shape_{1, count, kHeads, kWidth},
        gate_shape_{1, count, kHeads},
        q_(uploaded(tokens_of(1, first, count, kHeads * kWidth), shape_)),
        k_(uploaded(tokens_of(2, first, count, kHeads * kWidth), shape_)),
        v_(uploaded(tokens_of(3, first, count, kHeads * kWidth), shape_)),
        d_o_(uploaded(tokens_of(4, first, count, kHeads * kWidth), shape_)),
        o_(DType::kF32, shape_, device),
        dq_(DType::kF32, shape_, device),
        dk_(DType::kF32, shape_, device),
        dv_(DType::kF32, shape_, device),
        dg_(DType::kF32, gate_shape_, device) {
    Floats g = tokens_of(5, first, count, kHeads);
    for (float& decay : g) decay = -0.005F * (decay + 1);  // a state remembers hundreds of tokens
    g_ = uploaded(g, gate_shape_);
  }

  ConstTensorView q() const { return q_; }
  ConstTensorView k() const { return k_; }
  ConstTensorView v() const { return v_; }
  ops::RecurrentAttentionOptions options(Context& context) const {
    ops::RecurrentAttentionOptions given;
    given.g = ConstTensorView(g_);
    given.call.context = &context;
    return given;
  }
  ops::RecurrentAttentionOutputs outputs() { return {.o = o_}; }
  ops::RecurrentAttentionOutputGradients output_gradients() const {
    return {.d_o = ConstTensorView(d_o_)};
  }
  ops::RecurrentAttentionGradientOutputs gradients() {
    return {.dq = dq_, .dk = dk_, .dv = dv_, .dg = TensorView(dg_)};
  }
  /// o, dq, dk, dv and dg as they are by now, in host memory.
  std::vector<Floats> results() const {
    std::vector<Floats> all;
    for (const Tensor* const output : {&o_, &dq_, &dk_, &dv_, &dg_}) {
      const Tensor host = to_host(*output, device_);
      all.emplace_back(host.values<float>().begin(), host.values<float>().end());
    }
    return all;
  }

 private:
  Tensor uploaded(const Floats& values, const Extents& shape) const {
    Tensor tensor(DType::kF32, shape, device_);
    device_.copy_to_device(tensor.view().data, values.data(), tensor.bytes(), nullptr);
    device_.synchronize(nullptr);
    return tensor;
  }

  const Device& device_;
  Extents shape_, gate_shape_;
  Tensor q_, k_, v_, d_o_, g_;
  Tensor o_, dq_, dk_, dv_, dg_;
};

/// Both passes of a rank, with what they need.
class RankPlans {
 public:
  RankPlans(const Tokens& tokens, Context& context, const Device& device,
            const SequenceLayout& layout, Exchange& exchange)
      : device_(device),
        forward_(plan_recurrent_attention(tokens.q(), tokens.k(), tokens.v(),
                                          tokens.options(context), layout, exchange)),
        backward_(plan_recurrent_attention_backward(tokens.q(), tokens.k(), tokens.v(),
                                                    tokens.output_gradients(),
                                                    tokens.options(context), layout, exchange)),
        carried_(DType::kF32, forward_.carried_shape(), device),
        workspace_(DType::kF32,
                   {std::int64_t(std::max(forward_.workspace_bytes(), backward_.workspace_bytes()) /
                                 sizeof(float))},
                   device) {}

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
    const std::span<std::byte> memory(static_cast<std::byte*>(workspace_.view().data),
                                      workspace_.bytes());
    forward_.launch(ops::recurrent_attention_args(tokens.outputs(), tokens.q(), tokens.k(),
                                                  tokens.v(), options),
                    carried_.view(), exchange, nullptr, memory);
    backward_.launch(
        ops::recurrent_attention_backward_args(tokens.gradients(), tokens.q(), tokens.k(),
                                               tokens.v(), tokens.output_gradients(), options),
        carried_.view(), exchange, nullptr, memory);
    device_.synchronize(nullptr);
  }

 private:
  const Device& device_;
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
bool compare(const Tokens& own, std::int64_t tokens, Context& context, const Device& device,
             Exchange& exchange) {
  std::vector<Floats> got;
  for (const Floats& piece : own.results()) got.push_back(gathered(piece, exchange));
  if (exchange.rank() != 0) return true;
  Tokens whole(0, tokens, device);
  const auto options = whole.options(context);
  const auto start = Clock::now();
  ops::recurrent_attention_into(whole.outputs(), whole.q(), whole.k(), whole.v(), options);
  ops::recurrent_attention_backward_into(whole.gradients(), whole.q(), whole.k(), whole.v(),
                                         whole.output_gradients(), options);
  device.synchronize(nullptr);
  std::printf("one walk: %.1f ms\ndifference:", milliseconds_since(start));
  constexpr const char* kNames[] = {"o", "dq", "dk", "dv", "dg"};
  constexpr double kMost[] = {4e-5, 4e-5, 4e-5, 4e-5, 2e-4};  // twice what one walk may be off
  const std::vector<Floats> expected = whole.results();
  bool same = true;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const double error = error_of(got[i], expected[i]);
    std::printf(" %s %.1e", kNames[i], error);
    same = same && error <= kMost[i];
  }
  std::printf("\n");
  return same;
}

/// The first device of a backend. Throws Unavailable where there is none.
const Device& device_of(const Context& context, std::string_view backend) {
  return context.registry().device({.backend = ShortName(backend)});
}

struct Job {
  std::int64_t tokens = 0;
  std::string_view backend = "cpu";
};

/// All that one rank does. Whether it ended as it should.
bool run_rank(Exchange& exchange, const Job& job) {
  const auto context = make_context({.policy = Policy::kDb, .database = ""});
  const Device& device = device_of(*context, job.backend);
  const std::int64_t offsets[] = {0, job.tokens};
  const SequenceLayout layout(offsets, ops::distributed::even_ranges(job.tokens, exchange.size()),
                              exchange.rank());
  const ops::distributed::TokenRange range = layout.fragments()[0].tokens;
  Tokens own(range.begin, range.end - range.begin, device);

  // Every rank names its own problems; all are shared among them, and all choose alike afterwards.
  const auto wanted = RankPlans(own, *context, device, layout, exchange).wanted();
  const auto report = distributed::tune_together(
      exchange, *context, device, wanted,
      {.problem = std::chrono::milliseconds(300), .in_all = std::chrono::seconds(3)});
  std::printf("rank %d of %d: tokens %lld to %lld, tuned %zu problems; %s\n", exchange.rank(),
              exchange.size(), static_cast<long long>(range.begin),
              static_cast<long long>(range.end), report.tuned, report.agreement.text().c_str());
  if (!report.agreement.equal()) return false;

  RankPlans plans(own, *context, device, layout, exchange);
  distributed::StagedExchange states(exchange, device);
  plans.run(own, *context, states);  // once for the caches
  const auto start = Clock::now();
  plans.run(own, *context, states);
  if (exchange.rank() == 0) {
    std::printf("%d ranks: %.1f ms forward and backward; each sends %.2f MB, whatever T is\n",
                exchange.size(), milliseconds_since(start), 1e-6 * double(plans.sent_bytes()));
  }
  return compare(own, job.tokens, *context, device, exchange);
}

/// Ranks that are threads of this process.
bool run_threads(int ranks, const Job& job) {
  const auto exchanges = distributed::ThreadExchange::make(ranks);
  std::vector<char> right(exchanges.size());
  {
    std::vector<std::jthread> threads;
    for (std::size_t rank = 0; rank < exchanges.size(); ++rank) {
      threads.emplace_back([&, rank] {
        try {
          right[rank] = run_rank(*exchanges[rank], job);
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

/// Sets what the arguments say; false where they are not as the usage has them.
bool read_arguments(int argc, char** argv, Job& job, int& ranks) {
  std::string_view tokens;
  for (int i = 1; i < argc; i += 2) {
    const std::string_view name = argv[i];
    if (i + 1 == argc) return false;
    if (name == "--device") {
      job.backend = argv[i + 1];
    } else if (name == "--tokens") {
      tokens = argv[i + 1];
    } else if (name == "--ranks") {
      ranks = std::atoi(argv[i + 1]);
    } else {
      return false;
    }
  }
  if (tokens.empty()) tokens = job.backend == "cpu" ? "16384" : "262144";
  job.tokens = std::atoll(tokens.data());
  return true;
}

}  // namespace

int main(int argc, char** argv) {
  Job job;
  int ranks = 2;
  if (!read_arguments(argc, argv, job, ranks)) {
    std::fputs("usage: 06_ranks [--device cpu|gpu] [--tokens T] [--ranks N]\n", stderr);
    return 2;
  }
#if ATTUNE_EXAMPLE_MPI
  if (is_mpi_process()) {
    MPI_Init(&argc, &argv);
    distributed::MpiExchange exchange(MPI_COMM_WORLD);
    const bool right = job.tokens % exchange.size() == 0 && run_rank(exchange, job);
    MPI_Finalize();
    return right ? 0 : 1;
  }
#endif
  if (ranks < 1 || job.tokens < ranks || job.tokens % ranks != 0) {
    std::fprintf(stderr, "--tokens: %lld, expected a multiple of --ranks\n",
                 static_cast<long long>(job.tokens));
    return 2;
  }
  return run_threads(ranks, job) ? 0 : 1;
}
