// recurrent_decode as an op: its problem and its arguments, for those who write kernels, tune or
// plan. To call it, read recurrent_decode.hpp.
//
// Kernels see one token a row without its dimension, q [B,H,K] and T = 0, also where the caller
// gave [B,1,H,K].
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <tuple>

#include <attune/core/state_rounding.hpp>
#include <attune/ops/recurrent_attention_op.hpp>

namespace attune::ops {

/// Tokens of a row in one step at most, and as many committed ones.
inline constexpr std::int64_t kMaxStepTokens = 16;

struct RecurrentDecodeProblem {
  std::int64_t B = 1;         // >= 0: rows
  std::int64_t H = 1;         // >= 1: query heads
  std::int64_t Hkv = 0;       // >= 1, divides H
  std::int64_t K = 0;         // >= 1
  std::int64_t V = 0;         // >= 1
  std::int64_t S = 0;         // >= 0: slots of the state pool
  DType dtype = DType::kF32;  // of q, k, v, o
  std::int32_t gates = 0;     // Gate bits
  GateDType gate_dtype = GateDType::kF32;
  bool slots = true;              // slot_indices are given; otherwise row b uses slot b
  Layout layout = Layout::kBthd;  // kBthd: q, k, v, o and the state are dense; else kStrided
  bool aligned = true;            // every row of them starts at a multiple of 16 bytes
  bool tf32 = false;
  // Since the second release.
  std::int64_t T = 0;               // tokens a row, 2 .. 16; 0 for one, without its dimension
  std::int64_t R = 0;               // committed tokens a row, 1 .. 16; 0 for no replay
  bool kept = false;                // kept_slots are given, and no slot_indices
  DType state_dtype = DType::kF32;  // of the pool: f32, f16 or bf16
  StateRounding::Kind rounding = StateRounding::Kind::kNearest;  // of a pool in 16 bits

  std::int64_t tokens() const { return T == 0 ? 1 : T; }

  friend bool operator==(const RecurrentDecodeProblem&, const RecurrentDecodeProblem&) = default;
};

struct RecurrentDecodeArgs {
  ConstTensorView q, k, v;
  std::optional<ConstTensorView> g;
  ConstantDecay gamma;
  std::optional<ConstTensorView> gk, gv, slot_indices;
  std::optional<ConstTensorView> kept_slots, accepted;
  std::optional<ConstTensorView> committed_k, committed_v;  // given together, with their count
  std::optional<ConstTensorView> committed_g, committed_gk, committed_gv;  // as g, gk and gv
  std::optional<ConstTensorView> committed_accepted;
  StateRounding rounding;
  double scale = 1;
  TensorView state;  // updated in place
  TensorView o;
};

struct RecurrentDecode {
  static constexpr std::string_view kName = "recurrent_decode";
  static constexpr std::string_view kSummary =
      "a step of gated recurrent attention on a pool of states";
  using Problem = RecurrentDecodeProblem;
  using Args = RecurrentDecodeArgs;

  static constexpr auto fields() {
    return std::tuple{field("B", &Problem::B, Bucket::kPow2),
                      field("H", &Problem::H),
                      field("Hkv", &Problem::Hkv),
                      field("K", &Problem::K),
                      field("V", &Problem::V),
                      field("S", &Problem::S, Bucket::kPow2),
                      choice("dtype", &Problem::dtype, kFloatNames),
                      bits("gate", &Problem::gates, kGateNames).feature(),
                      choice("gate_dtype", &Problem::gate_dtype, kGateDTypeNames),
                      flag("slots", &Problem::slots).feature(),
                      choice("layout", &Problem::layout, kLayoutNames),
                      flag("aligned", &Problem::aligned),
                      flag("tf32", &Problem::tf32),
                      field("T", &Problem::T).optional("tokens"),
                      field("R", &Problem::R).optional("replay"),
                      flag("kept", &Problem::kept).optional(),
                      choice("state", &Problem::state_dtype, kFloatNames).optional(),
                      choice("rounding", &Problem::rounding, kRoundingNames).optional()};
  }
  static constexpr auto operands() {
    using Source = ConstantDecay::Source;
    return std::tuple{
        input("q", &Args::q, dims("B", "T", "H", "K")).rows(),
        input("k", &Args::k, dims("B", "T", "Hkv", "K")).rows(),
        input("v", &Args::v, dims("B", "T", "Hkv", "V")).rows(),
        gate("g", &Args::g, dims("B", "T", "H")).given_by(&Problem::gates, kGateG),
        gate("gk", &Args::gk, dims("B", "T", "H", "K"))
            .contiguous()
            .given_by(&Problem::gates, kGateGk),
        gate("gv", &Args::gv, dims("B", "T", "H", "V"))
            .contiguous()
            .given_by(&Problem::gates, kGateGv),
        gate("g_gamma", DecayValues<Source::kValues>(), dims("1", "H"))
            .f32()
            .leading(Leading::kMissing)
            .given_by(&Problem::gates, kGateGamma),
        gate("slopes", DecayValues<Source::kSlopes>(), dims("1", "H"))
            .f32()
            .leading(Leading::kMissing),
        index("slot_indices", &Args::slot_indices, dims("B")).given_by(&Problem::slots),
        index("kept_slots", &Args::kept_slots, dims("B", "T")).given_by(&Problem::kept),
        index("accepted", &Args::accepted, dims("B"))
            .only_with("kept_slots")
            .given_by(&Problem::kept),
        input("committed.k", &Args::committed_k, dims("B", "R", "Hkv", "K"))
            .rows()
            .given_by(&Problem::R),
        input("committed.v", &Args::committed_v, dims("B", "R", "Hkv", "V"))
            .rows()
            .only_with("committed.k")
            .given_by(&Problem::R),
        gate("committed.g", &Args::committed_g, dims("B", "R", "H"))
            .only_with("committed.k")
            .given_by(&Problem::gates, kGateG),
        gate("committed.gk", &Args::committed_gk, dims("B", "R", "H", "K"))
            .contiguous()
            .only_with("committed.k")
            .given_by(&Problem::gates, kGateGk),
        gate("committed.gv", &Args::committed_gv, dims("B", "R", "H", "V"))
            .contiguous()
            .only_with("committed.k")
            .given_by(&Problem::gates, kGateGv),
        index("committed.accepted", &Args::committed_accepted, dims("B"))
            .only_with("committed.k")
            .given_by(&Problem::R),
        state("state", &Args::state, dims("S", "H", "K", "V"))
            .state_type()
            .in_layout()
            .in_files("kv_cache"),
        output("o", &Args::o, dims("B", "T", "H", "V")).rows()};
  }
  static constexpr auto sizes() {
    return std::array{kHeadSizes[0],
                      kHeadSizes[1],
                      kHeadSizes[2],
                      kHeadSizes[3],
                      size_rule("S").used_by("B"),
                      size_rule("T").absent_at_0()};
  }
  static Params expand(Params params);  // D = K and V
  /// Hkv = H where it is 0; S = B, and with kept slots S = B T. Throws InvalidArgument.
  static void complete(Problem& problem);
  static std::unique_ptr<Case> make_case(const Problem& problem, const Device& device,
                                         std::uint64_t seed);
  static std::unique_ptr<Case> bind_case(const TensorMap& tensors, const Attributes& attributes,
                                         const Device& device);
  static Problem reduced(const Problem& problem);
  static double bytes(const Problem& problem);
  static double flops(const Problem& problem);
  static void check_args(const Problem& problem, const Args& args);
  static const DeviceId& device_of(const Args& args) { return args.q.device; }
};

/// A row of a step, as its indices in host memory say.
struct DecodeRow {
  std::int64_t start = 0;      // the slot that it starts from; negative: padding
  std::int64_t committed = 0;  // tokens that its state takes first, and is stored after
};
/// Throws InvalidArgument for an index that is out of range.
DecodeRow decode_row(const RecurrentDecodeProblem& problem, const RecurrentDecodeArgs& args,
                     std::int64_t row);
/// With kept slots, where the state after this token of the row goes; negative: nowhere. Throws
/// InvalidArgument for an index that is out of range.
std::int64_t kept_slot(const RecurrentDecodeProblem& problem, const RecurrentDecodeArgs& args,
                       std::int64_t row, std::int64_t token);

}  // namespace attune::ops
