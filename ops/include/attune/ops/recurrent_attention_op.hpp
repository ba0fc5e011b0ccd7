// recurrent_attention as an op: its problem and its arguments, for those who write kernels, tune or
// plan. To call it, read recurrent_attention.hpp, which also has the formulas.
//
// Arguments reach a kernel in one canonical form, however the caller spelt them:
//   * q, k, v, o, g, gk, gv and their gradients have a batch dimension (rank-3 packed inputs get B
//   = 1);
//   * a rank-4 g has become gk; gates of lightning attention have become `gamma`;
//   * gamma.values, where there are any, is [N, H] (a [H] tensor has stride 0 over N).
// They were validated: shapes agree, the last dimension of q, k, v, o, gk and gv is contiguous.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <tuple>

#include <attune/core/case.hpp>
#include <attune/core/op.hpp>
#include <attune/core/problem.hpp>
#include <attune/core/tensor.hpp>

namespace attune::ops {

/// Bits of RecurrentAttentionProblem::gates.
enum Gate : std::int32_t {
  kGateG = 1,      // g [B,T,H]
  kGateGamma = 2,  // g_gamma, slopes, or a layer's decay
  kGateGk = 4,     // gk [B,T,H,K]
  kGateGv = 8,     // gv [B,T,H,V]
};
inline constexpr std::array<std::string_view, 4> kGateNames{"g", "gamma", "gk", "gv"};

/// Element types of q, k, v and o; the values of DType they start with.
inline constexpr std::array<std::string_view, 3> kFloatNames{"f32", "f16", "bf16"};

/// Element type of the gates g, gk and gv.
enum class GateDType : std::int32_t { kF32, kIo, kMixed };  // all f32; all q's; some of each
inline constexpr std::array<std::string_view, 3> kGateDTypeNames{"f32", "io", "mixed"};

/// How q, k, v and o lie in memory; in the backward pass, their gradients too, and not o.
enum class Layout : std::int32_t {
  kBthd,     // dense [B, T, H, D]
  kBhtd,     // dense [B, H, T, D], passed as its [B, T, H, D] view
  kStrided,  // anything else
};
inline constexpr std::array<std::string_view, 3> kLayoutNames{"bthd", "bhtd", "strided"};

/// What is computed. Calls with equal problems share a tuned config.
struct RecurrentAttentionProblem {
  std::int64_t B = 1;    // >= 0; 1 when packed
  std::int64_t T = 0;    // >= 0: tokens a sequence, or of all sequences when packed
  std::int64_t H = 1;    // >= 1: query heads
  std::int64_t Hkv = 0;  // >= 1, divides H: key and value heads
  std::int64_t K = 0;    // >= 1: key channels a head
  std::int64_t V = 0;    // >= 1: value channels a head
  std::int64_t N = 0;  // 0: batched, B sequences of T tokens; else N packed sequences (cu_seqlens)
  DType dtype = DType::kF32;               // of q, k, v, o: f32, f16 or bf16
  std::int32_t gates = 0;                  // Gate bits
  GateDType gate_dtype = GateDType::kF32;  // kF32 when there is no g, gk or gv
  bool h0 = false;                         // an initial state is given
  bool ht = false;  // forward: the final state is wanted; backward: its gradient is given
  bool d_o = true;  // backward: the gradient of o is given; forward: always true
  bool reverse = false;
  Layout layout = Layout::kBthd;
  bool aligned = true;  // every row of those starts at a multiple of 16 bytes
  bool tf32 = false;    // products of f32 inputs may be rounded to TF32

  /// Sequences, and states: N when packed, else B.
  std::int64_t sequences() const { return N > 0 ? N : B; }
  friend bool operator==(const RecurrentAttentionProblem&,
                         const RecurrentAttentionProblem&) = default;
};

/// A log decay that is constant in time, one value a head, in one of its spellings. Kernels ask
/// gamma_of().
struct ConstantDecay {
  enum class Source : std::int32_t {
    kNone,
    kValues,  // `values` [N, H] f32: the log decay itself
    kSlopes,  // `values` [N, H] f32: minus the log decay
    kLayer,   // -(8 / H) (1 - layer_idx / num_layers) h, computed where the kernel runs
  };
  Source source = Source::kNone;
  ConstTensorView values;
  std::int64_t layer_idx = 0;
  std::int64_t num_layers = 1;
};

/// The log decay of head h of sequence n (host memory only).
double gamma_of(const ConstantDecay& gamma, std::int64_t n, std::int64_t h, std::int64_t heads);

struct RecurrentAttentionArgs {
  ConstTensorView q;                             // [B, T, H, K]
  ConstTensorView k;                             // [B, T, Hkv, K]
  ConstTensorView v;                             // [B, T, Hkv, V]
  std::optional<ConstTensorView> g;              // [B, T, H]
  ConstantDecay gamma;                           // [N, H]
  std::optional<ConstTensorView> gk;             // [B, T, H, K]
  std::optional<ConstTensorView> gv;             // [B, T, H, V]
  std::optional<ConstTensorView> initial_state;  // [N, H, K, V] f32
  std::optional<ConstTensorView> cu_seqlens;     // [N + 1] i32 or i64
  double scale = 1;
  TensorView o;                           // [B, T, H, V]
  std::optional<TensorView> final_state;  // [N, H, K, V] f32; may be initial_state itself
};

/// The forward pass.
struct RecurrentAttention {
  static constexpr std::string_view kName = "recurrent_attention";
  static constexpr std::string_view kSummary = "gated recurrent linear attention, forward";
  using Problem = RecurrentAttentionProblem;
  using Args = RecurrentAttentionArgs;

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
                      flag("ht", &Problem::ht).feature(),
                      flag("reverse", &Problem::reverse).feature(),
                      choice("layout", &Problem::layout, kLayoutNames),
                      flag("aligned", &Problem::aligned),
                      flag("tf32", &Problem::tf32)};
  }
  static Params expand(Params params);     // D = K and V
  static void complete(Problem& problem);  // Hkv = H where it is 0; throws InvalidArgument
  static std::unique_ptr<Case> make_case(const Problem& problem, const Device& device,
                                         std::uint64_t seed);
  static std::unique_ptr<Case> bind_case(const TensorMap& tensors, const Attributes& attributes,
                                         const Device& device);
  static Problem reduced(const Problem& problem);
  static double bytes(const Problem& problem);
  static double flops(const Problem& problem);  // 4 K V a token and head
  static void check_args(const Problem& problem, const Args& args);
  static const DeviceId& device_of(const Args& args) { return args.q.device; }
};

struct RecurrentAttentionBackwardArgs {
  ConstTensorView q, k, v;  // as in the forward pass, and so on
  std::optional<ConstTensorView> g;
  ConstantDecay gamma;
  std::optional<ConstTensorView> gk, gv, initial_state, cu_seqlens;
  double scale = 1;
  std::optional<ConstTensorView> d_o;           // [B, T, H, V], q's dtype; zero when not given
  std::optional<ConstTensorView> dfinal_state;  // [N, H, K, V] f32; zero when not given
  TensorView dq, dk, dv;                        // q's dtype, shapes of q, k, v
  std::optional<TensorView> dg, dgk, dgv;       // f32, shapes of the gates
  std::optional<TensorView> dgamma;  // [N, H] f32 (stride 0 over N: summed over sequences), of
                                     // gamma.values: for kSlopes the sign is already theirs
  std::optional<TensorView> dinitial_state;  // [N, H, K, V] f32
};

/// The backward pass: from the forward pass's inputs alone; o and states are recomputed.
struct RecurrentAttentionBackward {
  static constexpr std::string_view kName = "recurrent_attention.backward";
  static constexpr std::string_view kSummary = "gated recurrent linear attention, backward";
  using Problem = RecurrentAttentionProblem;
  using Args = RecurrentAttentionBackwardArgs;

  static constexpr auto fields() {
    return std::tuple_cat(RecurrentAttention::fields(), std::tuple{flag("do", &Problem::d_o)});
  }
  static Params expand(Params params) { return RecurrentAttention::expand(std::move(params)); }
  static void complete(Problem& problem) { RecurrentAttention::complete(problem); }
  static std::unique_ptr<Case> make_case(const Problem& problem, const Device& device,
                                         std::uint64_t seed);
  static std::unique_ptr<Case> bind_case(const TensorMap& tensors, const Attributes& attributes,
                                         const Device& device);
  static Problem reduced(const Problem& problem) { return RecurrentAttention::reduced(problem); }
  static double bytes(const Problem& problem);
  static double flops(
      const Problem& problem);  // 12 K V a token and head: state, its gradient, four products
  static void check_args(const Problem& problem, const Args& args);
  static const DeviceId& device_of(const Args& args) { return args.q.device; }
};

}  // namespace attune::ops
