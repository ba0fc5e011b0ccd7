// recurrent_decode as an op: its problem and its arguments, for those who write kernels, tune or
// plan. To call it, read recurrent_decode.hpp.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <tuple>

#include <attune/ops/recurrent_attention_op.hpp>

namespace attune::ops {

struct RecurrentDecodeProblem {
  std::int64_t B = 1;         // >= 0: rows, one token each
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

  friend bool operator==(const RecurrentDecodeProblem&, const RecurrentDecodeProblem&) = default;
};

struct RecurrentDecodeArgs {
  ConstTensorView q, k, v;
  std::optional<ConstTensorView> g;
  ConstantDecay gamma;
  std::optional<ConstTensorView> gk, gv, slot_indices;
  double scale = 1;
  TensorView state;  // updated in place
  TensorView o;
};

struct RecurrentDecode {
  static constexpr std::string_view kName = "recurrent_decode";
  static constexpr std::string_view kSummary =
      "one token of gated recurrent attention on a pool of states";
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
                      flag("tf32", &Problem::tf32)};
  }
  static constexpr auto operands() {
    using Source = ConstantDecay::Source;
    return std::tuple{
        input("q", &Args::q, dims("B", "H", "K")).rows(),
        input("k", &Args::k, dims("B", "Hkv", "K")).rows(),
        input("v", &Args::v, dims("B", "Hkv", "V")).rows(),
        gate("g", &Args::g, dims("B", "H")).given_by(&Problem::gates, kGateG),
        gate("gk", &Args::gk, dims("B", "H", "K")).contiguous().given_by(&Problem::gates, kGateGk),
        gate("gv", &Args::gv, dims("B", "H", "V")).contiguous().given_by(&Problem::gates, kGateGv),
        gate("g_gamma", DecayValues<Source::kValues>(), dims("1", "H"))
            .f32()
            .leading(Leading::kMissing)
            .given_by(&Problem::gates, kGateGamma),
        gate("slopes", DecayValues<Source::kSlopes>(), dims("1", "H"))
            .f32()
            .leading(Leading::kMissing),
        index("slot_indices", &Args::slot_indices, dims("B")).given_by(&Problem::slots),
        state("state", &Args::state, dims("S", "H", "K", "V")).in_layout().in_files("kv_cache"),
        output("o", &Args::o, dims("B", "H", "V")).rows()};
  }
  static constexpr auto sizes() {
    return std::array{kHeadSizes[0], kHeadSizes[1], kHeadSizes[2], kHeadSizes[3],
                      size_rule("S").used_by("B")};
  }
  static Params expand(Params params);  // D = K and V
  /// Hkv = H, S = B where they are 0. Throws InvalidArgument.
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

}  // namespace attune::ops
