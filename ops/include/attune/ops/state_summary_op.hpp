// state_summary: what a run of tokens does to the state of recurrent_attention, whatever state
// comes to it. With a_t = exp(g_t + g_gamma + gk_t[i] + gv_t[j]) the decay of token t, tokens 1 ..
// n act as
//
//   S_n[i,j] = exp(gk_sum[i] + gv_sum[j]) * S_0[i,j] + final_state[i,j]
//
//   gk_sum[i]  = sum_t (g_t + g_gamma + gk_t[i])           gv_sum[j] = sum_t gv_t[j]
//   final_state = S_n for S_0 = 0, of    S_t = a_t * S_{t-1} + scale * k_t v_t
//
// Summaries of neighbouring runs, folded in order (state_fold_op.hpp), give the state between any
// two of them: long sequences are cut that way, over ranks or over segments.
//
// The backward pass is the same op. The gradient of the state travels against time,
//
//   dS_{t-1} = a_t * (dS_t + scale * q_t do_t)
//
// so it is the summary of q in place of k (as many heads as q), do in place of v, `reverse` turned
// round, and `inclusive`: a token's own decay acts on what it writes, too,
//
//   S_t = a_t * (S_{t-1} + scale * k_t v_t)
//
//   tensor         shape                     type            notes
//   k              [B,T,Hkv,K]               f32, f16, bf16  these as in recurrent_attention.hpp
//   v              [B,T,Hkv,V]               k's
//   g              [B,T,H]                   f32 or k's
//   gk, gv         [B,T,H,K], [B,T,H,V]      f32 or k's
//   g_gamma        [H] or [N,H]              f32
//   initial_state  [N,H,K,V]                 f32             S_0 of final_state in place of 0
//   cu_seqlens     [N+1]                     i32, i64        packed sequences: one summary each
//   final_state    [N,H,K,V]                 f32             any strides, as the next two
//   gk_sum         [N,H,K]                   f32             of all decays but gv
//   gv_sum         [N,H,V]                   f32             given exactly when gv is
//
// Sums and states are fp32 at least; types, strides, -inf gates, padded batches, precision and what
// is not finite are as in recurrent_attention.hpp. Without gates the sums are 0. The number of
// heads is final_state's.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <tuple>

#include <attune/ops/recurrent_attention_op.hpp>

namespace attune::ops {

/// As RecurrentAttentionProblem, where names agree.
struct StateSummaryProblem {
  std::int64_t B = 1;
  std::int64_t T = 0;
  std::int64_t H = 1;
  std::int64_t Hkv = 0;
  std::int64_t K = 0;
  std::int64_t V = 0;
  std::int64_t N = 0;
  DType dtype = DType::kF32;  // of k and v
  std::int32_t gates = 0;
  GateDType gate_dtype = GateDType::kF32;
  bool h0 = false;
  bool reverse = false;
  bool inclusive = false;  // a token's own decay acts on what it writes
  Layout layout = Layout::kBthd;
  bool aligned = true;
  bool tf32 = false;

  std::int64_t sequences() const { return N > 0 ? N : B; }
  /// The walk that ends in final_state, as a problem of recurrent_attention.
  RecurrentAttentionProblem walk() const;
  friend bool operator==(const StateSummaryProblem&, const StateSummaryProblem&) = default;
};

/// In canonical form, as RecurrentAttentionArgs.
struct StateSummaryArgs {
  ConstTensorView k, v;
  std::optional<ConstTensorView> g;
  ConstantDecay gamma;
  std::optional<ConstTensorView> gk, gv, initial_state, cu_seqlens;
  double scale = 1;
  TensorView final_state, gk_sum;
  std::optional<TensorView> gv_sum;
};

struct StateSummary {
  static constexpr std::string_view kName = "state_summary";
  static constexpr std::string_view kSummary = "what tokens do to the state of recurrent attention";
  using Problem = StateSummaryProblem;
  using Args = StateSummaryArgs;

  static constexpr auto fields() {
    return std::tuple{field("B", &Problem::B, Bucket::kPow2),
                      field("T", &Problem::T, Bucket::kPow2),
                      field("H", &Problem::H),
                      field("Hkv", &Problem::Hkv),
                      field("K", &Problem::K),
                      field("V", &Problem::V),
                      field("N", &Problem::N, Bucket::kPow2).feature("packed"),
                      choice("dtype", &Problem::dtype, kFloatNames),
                      bits("gate", &Problem::gates, kGateNames).feature(),
                      choice("gate_dtype", &Problem::gate_dtype, kGateDTypeNames),
                      flag("h0", &Problem::h0).feature(),
                      flag("reverse", &Problem::reverse).feature(),
                      flag("inclusive", &Problem::inclusive).feature(),
                      choice("layout", &Problem::layout, kLayoutNames),
                      flag("aligned", &Problem::aligned),
                      flag("tf32", &Problem::tf32)};
  }
  static constexpr auto operands() {
    using Source = ConstantDecay::Source;
    return std::tuple{input("k", &Args::k, dims("B", "T", "Hkv", "K")).rows(),
                      input("v", &Args::v, dims("B", "T", "Hkv", "V")).rows(),
                      gate("g", &Args::g, dims("B", "T", "H")).given_by(&Problem::gates, kGateG),
                      gate("gk", &Args::gk, dims("B", "T", "H", "K"))
                          .contiguous()
                          .given_by(&Problem::gates, kGateGk),
                      gate("gv", &Args::gv, dims("B", "T", "H", "V"))
                          .contiguous()
                          .given_by(&Problem::gates, kGateGv),
                      gate("g_gamma", DecayValues<Source::kValues>(), dims("N", "H"))
                          .f32()
                          .leading(Leading::kMayBeMissing)
                          .given_by(&Problem::gates, kGateGamma),
                      gate("slopes", DecayValues<Source::kSlopes>(), dims("N", "H"))
                          .f32()
                          .leading(Leading::kMissing),
                      input("initial_state", &Args::initial_state, dims("N", "H", "K", "V"))
                          .f32()
                          .normal(0.1)
                          .given_by(&Problem::h0),
                      index("cu_seqlens", &Args::cu_seqlens, dims("N + 1")).given_by(&Problem::N),
                      output("final_state", &Args::final_state, dims("N", "H", "K", "V")).f32(),
                      output("gk_sum", &Args::gk_sum, dims("N", "H", "K")).f32(),
                      output("gv_sum", &Args::gv_sum, dims("N", "H", "V"))
                          .f32()
                          .only_with("gv")
                          .given_by(&Problem::gates, kGateGv)};
  }
  static constexpr auto sizes() { return RecurrentAttention::sizes(); }
  static Params expand(Params params);     // D = K and V
  static void complete(Problem& problem);  // Hkv = H where it is 0; throws InvalidArgument
  static std::unique_ptr<Case> make_case(const Problem& problem, const Device& device,
                                         std::uint64_t seed);
  static std::unique_ptr<Case> bind_case(const TensorMap& tensors, const Attributes& attributes,
                                         const Device& device);
  static Problem reduced(const Problem& problem);
  static double bytes(const Problem& problem);
  static double flops(const Problem& problem);  // 2 K V a token and head
  static void check_args(const Problem& problem, const Args& args);
  static const DeviceId& device_of(const Args& args) { return args.k.device; }
};

}  // namespace attune::ops
