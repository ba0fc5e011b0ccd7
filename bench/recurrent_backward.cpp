// The simd kernels of recurrent_attention.backward against the chunked forward pass, and the
// recurrent one against the chunked one.
//
//   H = 16, K = V = D, do given, no states, one thread. The forward pass is the one that a training
//   step runs: the same inputs, o alone. GFLOP/s are nominal: 12 K V a token and head. Times are of
//   the processor, not of the clock, which a neighbour on the machine stops at will; samples
//   alternate, and each time is the shortest of the rounds. Configs are the heuristic's but for the
//   number of threads.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <ctime>
#include <string>

#include <attune/attune.hpp>

namespace {

using namespace attune;

constexpr std::int64_t kHeads = 16;
constexpr int kRounds = 15;

struct Setup {
  std::int64_t tokens = 512;
  std::int64_t dim = 64;
  std::string gate;  // "none", "g", "gk" or "gk+gv"
  std::string dtype = "f32";
};

/// One candidate on a made-up case of `op`.
class Timed {
 public:
  Timed(const Context& context, std::string_view op, std::string_view kernel, const Setup& setup)
      : op_(*context.registry().find_op(op)),
        problem_(op_.parse(parse_params(str("B=1 T=", setup.tokens, " H=", kHeads, " D=", setup.dim,
                                            " gate=", setup.gate, " dtype=", setup.dtype),
                                        ' '))),
        case_(op_.make_case(problem_, cpu_device(), 1)),
        kernel_(*context.registry().find_kernel(kernel)->kernel) {
    Params params = kernel_.params(kernel_.erased_heuristic(problem_, cpu_device().info()));
    for (Param& param : params) {
      if (param.name == "threads") param.value = "1";
    }
    config_ = kernel_.parse(params);
    bytes_ = kernel_.erased_workspace_bytes(problem_, config_);
    workspace_ = Tensor(DType::kF32, {static_cast<std::int64_t>(bytes_ / sizeof(float) + 1)});
  }

  double us() {
    const std::clock_t start = std::clock();
    kernel_.erased_run(problem_, case_->args(), config_,
                       {.workspace = {static_cast<std::byte*>(workspace_.view().data), bytes_}});
    return static_cast<double>(std::clock() - start) * (1e6 / CLOCKS_PER_SEC);
  }

 private:
  const OpInfo& op_;
  AnyProblem problem_;
  std::unique_ptr<Case> case_;
  const ErasedKernel& kernel_;
  ConfigBlob config_;
  std::size_t bytes_ = 0;
  Tensor workspace_;
};

void run(const Context& context, const Setup& setup) {
  Timed forward(context, "recurrent_attention", "simd.chunk", setup);
  Timed chunk(context, "recurrent_attention.backward", "simd.chunk.backward", setup);
  Timed recurrent(context, "recurrent_attention.backward", "simd.recurrent_attention.backward",
                  setup);
  double forward_us = HUGE_VAL, chunk_us = HUGE_VAL, recurrent_us = HUGE_VAL;
  for (int round = 0; round < kRounds; ++round) {
    forward_us = std::min(forward_us, forward.us());
    chunk_us = std::min(chunk_us, chunk.us());
    recurrent_us = std::min(recurrent_us, recurrent.us());
  }
  const double flop = 12.0 * static_cast<double>(setup.dim * setup.dim * setup.tokens * kHeads);
  std::printf("| %4s | %3d | %5d | %5s | %8.0f | %8.0f | %7.1f | %5.2f | %8.2fx |\n",
              setup.dtype.c_str(), static_cast<int>(setup.dim), static_cast<int>(setup.tokens),
              setup.gate.c_str(), forward_us, chunk_us, flop / chunk_us / 1e3,
              chunk_us / forward_us, recurrent_us / chunk_us);
  std::fflush(stdout);
}

}  // namespace

int main() {
  const auto context = make_context({.policy = Policy::kHeuristic, .database = ""});
  std::printf(
      "| type |   D |     T | gate  |   fwd us |   bwd us | GFLOP/s | / fwd | recurrent |\n"
      "|------|----:|------:|-------|---------:|---------:|--------:|------:|----------:|\n");
  for (const char* dtype : {"f32", "bf16"}) {
    for (const std::int64_t dim : {64, 128}) {
      for (const char* gate : {"none", "g", "gk", "gk+gv"}) {
        for (const std::int64_t tokens : {8, 16, 32, 512}) {
          run(*context, {.tokens = tokens, .dim = dim, .gate = gate, .dtype = dtype});
        }
      }
    }
  }
}
