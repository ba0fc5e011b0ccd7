// recurrent_attention as an op: its problem and its arguments, for those who write kernels, tune or
// plan. To call it, read recurrent_attention.hpp, which also has the formulas.
//
// Arguments reach a kernel in one canonical form, however the caller spelt them:
//   * every tensor has all dimensions that operands() declares: packed tensors of rank 3 get B = 1,
//     a g_gamma [H] is repeated over N with stride 0;
//   * a g of rank 4 has become gk; g_gamma, slopes or a layer have become `gamma`.
// They were validated against operands().
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <tuple>

#include <attune/core/case.hpp>
#include <attune/core/op.hpp>
#include <attune/core/operands.hpp>
#include <attune/core/problem.hpp>
#include <attune/core/state_rounding.hpp>
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

/// How states are rounded when they are stored; the values of StateRounding::Kind.
inline constexpr std::array<std::string_view, 2> kRoundingNames{"nearest", "stochastic"};

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
  std::int64_t N = 0;    // 0: batched, B sequences of T tokens; else packed sequences (cu_seqlens)
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
  // Of the forward pass alone:
  bool pool = false;                // states are slots of a pool: neither h0 nor ht then
  bool initial_slots = false;       // a sequence may start from another slot than it ends in
  std::int64_t snapshot_every = 0;  // tokens, a multiple of 64; 0: no snapshots
  DType state_dtype = DType::kF32;  // of states: f32, f16 or bf16
  StateRounding::Kind rounding = StateRounding::Kind::kNearest;  // of 16-bit states

  /// Sequences, and states: N when packed, else B.
  std::int64_t sequences() const { return N > 0 ? N : B; }
  bool reads_states() const { return h0 || pool; }
  bool writes_states() const { return ht || pool; }
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

/// The values of a constant decay as an operand, where they come from this source.
template <ConstantDecay::Source kSource>
struct DecayValues {
  template <class Args>
  static ViewRef view(const Args& args) {
    return args.gamma.source == kSource ? ViewRef(args.gamma.values) : ViewRef();
  }
  template <class Args>
  static void set(Args& args, const TensorView& view) {
    args.gamma.source = kSource;
    args.gamma.values = view;
  }
  template <class Args>
  static void add_leading(Args& args, std::int64_t size) {
    repeat_over(args.gamma.values, size);
  }
};

/// Their gradient as an operand: `dgamma`, under the name of its source.
template <ConstantDecay::Source kSource>
struct DecayGradient {
  template <class Args>
  static ViewRef view(const Args& args) {
    constexpr auto kSlopes = ConstantDecay::Source::kSlopes;
    const bool named_so = (args.gamma.source == kSlopes) == (kSource == kSlopes);
    return args.dgamma && named_so ? ViewRef(*args.dgamma) : ViewRef();
  }
  template <class Args>
  static void set(Args& args, const TensorView& view) {
    args.dgamma = view;
  }
  template <class Args>
  static void add_leading(Args& args, std::int64_t size) {
    repeat_over(*args.dgamma, size);
  }
};

struct RecurrentAttentionArgs {
  ConstTensorView q, k, v;
  std::optional<ConstTensorView> g;
  ConstantDecay gamma;
  std::optional<ConstTensorView> gk, gv, initial_state, cu_seqlens;
  double scale = 1;
  TensorView o;
  std::optional<TensorView> final_state;
  std::optional<TensorView> states;  // with final_slots, and without initial_state and final_state
  std::optional<ConstTensorView> initial_slots, final_slots, snapshot_slots;
  std::int64_t snapshot_every = 0;
  StateRounding state_rounding;

  /// The slots that sequences start from, where there is a pool.
  const ConstTensorView& first_slots() const {
    return initial_slots ? *initial_slots : *final_slots;
  }
};

/// 16-bit states are the forward pass's.
template <class Args>
constexpr auto initial_state_operand() {
  const auto operand = input("initial_state", &Args::initial_state, dims("N", "H", "K", "V"))
                           .normal(0.1)
                           .given_by(&RecurrentAttentionProblem::h0);
  if constexpr (requires { &Args::states; }) {
    return operand.state_type().not_with("states");
  } else {
    return operand.f32();
  }
}

/// The inputs that both passes have, in the order in which they are checked.
template <class Args>
constexpr auto recurrent_attention_inputs() {
  using P = RecurrentAttentionProblem;
  using Source = ConstantDecay::Source;
  return std::tuple{
      input("q", &Args::q, dims("B", "T", "H", "K")).rows(),
      input("k", &Args::k, dims("B", "T", "Hkv", "K")).rows(),
      input("v", &Args::v, dims("B", "T", "Hkv", "V")).rows(),
      gate("g", &Args::g, dims("B", "T", "H")).given_by(&P::gates, kGateG),
      gate("gk", &Args::gk, dims("B", "T", "H", "K")).contiguous().given_by(&P::gates, kGateGk),
      gate("gv", &Args::gv, dims("B", "T", "H", "V")).contiguous().given_by(&P::gates, kGateGv),
      gate("g_gamma", DecayValues<Source::kValues>(), dims("N", "H"))
          .f32()
          .leading(Leading::kMayBeMissing)
          .given_by(&P::gates, kGateGamma),
      gate("slopes", DecayValues<Source::kSlopes>(), dims("N", "H"))
          .f32()
          .leading(Leading::kMissing),
      initial_state_operand<Args>(),
      index("cu_seqlens", &Args::cu_seqlens, dims("N + 1")).given_by(&P::N)};
}

/// The sizes that calls of attention and of decoding share.
inline constexpr std::array kHeadSizes{size_rule("H").at_least(1, "at least one head"),
                                       size_rule("Hkv").divisor_of("H", "heads"),
                                       size_rule("K").at_least(1), size_rule("V").at_least(1)};

/// The fields that problems of both passes have.
constexpr auto recurrent_attention_fields() {
  using Problem = RecurrentAttentionProblem;
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

/// The forward pass.
///
/// A kernel that names "packed" writes zeros to the rows of o behind the last sequence: cu_seqlens
/// may end before T. The same holds of gradients in the backward pass.
struct RecurrentAttention {
  static constexpr std::string_view kName = "recurrent_attention";
  static constexpr std::string_view kSummary = "gated recurrent linear attention, forward";
  using Problem = RecurrentAttentionProblem;
  using Args = RecurrentAttentionArgs;

  static constexpr auto fields() {
    return std::tuple_cat(
        recurrent_attention_fields(),
        std::tuple{flag("pool", &Problem::pool).optional(),
                   flag("initial_slots", &Problem::initial_slots).optional(),
                   field("snapshot_every", &Problem::snapshot_every).optional(),
                   choice("state", &Problem::state_dtype, kFloatNames).optional(),
                   choice("rounding", &Problem::rounding, kRoundingNames).optional()});
  }
  static constexpr auto operands() {
    return std::tuple_cat(
        recurrent_attention_inputs<Args>(),
        std::tuple{state("states", &Args::states, dims("S", "H", "K", "V"))
                       .state_type()
                       .given_by(&Problem::pool),
                   index("initial_slots", &Args::initial_slots, dims("N"))
                       .only_with("states")
                       .given_by(&Problem::initial_slots),
                   index("final_slots", &Args::final_slots, dims("N"))
                       .only_with("states")
                       .given_by(&Problem::pool),
                   index("snapshot_slots", &Args::snapshot_slots, dims("N", "M"))
                       .only_with("states")
                       .given_by(&Problem::snapshot_every),
                   output("o", &Args::o, dims("B", "T", "H", "V")).rows(),
                   output("final_state", &Args::final_state, dims("N", "H", "K", "V"))
                       .state_type()
                       .not_with("states")
                       .may_be("initial_state")
                       .given_by(&Problem::ht)});
  }
  static constexpr auto sizes() {
    return std::array{kHeadSizes[0], kHeadSizes[1], kHeadSizes[2], kHeadSizes[3],
                      size_rule("N").or_else("B")};
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
  ConstTensorView q, k, v;
  std::optional<ConstTensorView> g;
  ConstantDecay gamma;
  std::optional<ConstTensorView> gk, gv, initial_state, cu_seqlens;
  double scale = 1;
  std::optional<ConstTensorView> d_o, dfinal_state;  // zero when not given
  TensorView dq, dk, dv;
  std::optional<TensorView> dg, dgk, dgv;
  /// Of gamma.values: for kSlopes the sign is already theirs. With stride 0 over N it is summed
  /// over sequences.
  std::optional<TensorView> dgamma;
  std::optional<TensorView> dinitial_state;
};

/// The backward pass: from the forward pass's inputs alone; o and states are recomputed.
struct RecurrentAttentionBackward {
  static constexpr std::string_view kName = "recurrent_attention.backward";
  static constexpr std::string_view kSummary = "gated recurrent linear attention, backward";
  using Problem = RecurrentAttentionProblem;
  using Args = RecurrentAttentionBackwardArgs;

  static constexpr auto fields() {
    return std::tuple_cat(recurrent_attention_fields(), std::tuple{flag("do", &Problem::d_o)});
  }
  static constexpr auto operands() {
    using Source = ConstantDecay::Source;
    return std::tuple_cat(
        recurrent_attention_inputs<Args>(),
        std::tuple{input("d_o", &Args::d_o, dims("B", "T", "H", "V"))
                       .rows()
                       .in_files("do")
                       .given_by(&Problem::d_o),
                   input("dfinal_state", &Args::dfinal_state, dims("N", "H", "K", "V"))
                       .f32()
                       .normal(0.1)
                       .given_by(&Problem::ht),
                   output("dq", &Args::dq, dims("B", "T", "H", "K")).rows().gradient_of("q"),
                   output("dk", &Args::dk, dims("B", "T", "Hkv", "K")).rows().gradient_of("k"),
                   output("dv", &Args::dv, dims("B", "T", "Hkv", "V")).rows().gradient_of("v"),
                   output("dg", &Args::dg, dims("B", "T", "H")).f32().gradient_of("g"),
                   output("dgk", &Args::dgk, dims("B", "T", "H", "K"))
                       .f32()
                       .contiguous()
                       .gradient_of("gk"),
                   output("dgv", &Args::dgv, dims("B", "T", "H", "V"))
                       .f32()
                       .contiguous()
                       .gradient_of("gv"),
                   output("dg_gamma", DecayGradient<Source::kValues>(), dims("N", "H"))
                       .f32()
                       .leading(Leading::kMayBeMissing)
                       .gradient_of("g_gamma"),
                   output("dslopes", DecayGradient<Source::kSlopes>(), dims("N", "H"))
                       .f32()
                       .leading(Leading::kMissing)
                       .gradient_of("slopes"),
                   output("dinitial_state", &Args::dinitial_state, dims("N", "H", "K", "V"))
                       .f32()
                       .gradient_of("initial_state")});
  }
  static constexpr auto sizes() { return RecurrentAttention::sizes(); }
  static Params expand(Params params) { return RecurrentAttention::expand(std::move(params)); }
  static void complete(Problem& problem) { RecurrentAttention::complete(problem); }
  static std::unique_ptr<Case> make_case(const Problem& problem, const Device& device,
                                         std::uint64_t seed);
  static std::unique_ptr<Case> bind_case(const TensorMap& tensors, const Attributes& attributes,
                                         const Device& device);
  static Problem reduced(const Problem& problem) { return RecurrentAttention::reduced(problem); }
  static double bytes(const Problem& problem);
  /// 12 K V a token and head: state, its gradient, four products.
  static double flops(const Problem& problem);
  static void check_args(const Problem& problem, const Args& args);
  static const DeviceId& device_of(const Args& args) { return args.q.device; }
};

}  // namespace attune::ops
