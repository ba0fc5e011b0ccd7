// What random legal calls are made of: sizes, types and layouts, tensors of them, gates of every
// strength; and how results are held against the formula in double.
#pragma once

#include <cmath>
#include <cstdint>
#include <list>
#include <map>
#include <optional>
#include <vector>

#include <attune/attune.hpp>

#include "support/drawn_tensor.hpp"

namespace attune::test {

using Values = std::vector<double>;
using Integers = std::vector<std::int64_t>;

inline constexpr DType kFloatTypes[] = {DType::kF32, DType::kF16, DType::kBF16};

/// What gates are drawn from. kMixed has what is furthest from usual among them: -inf, -1e30.
enum class GateKind : std::uint8_t { kWeak, kMiddling, kStrong, kMixed, kZero, kGrowing };

double drawn_gate(Draw& draw, GateKind kind);

/// Sizes, types, layout and inputs that all calls share.
class DrawnCall {
 public:
  /// `most_work`: of tokens times heads times K times V, about.
  DrawnCall(std::uint64_t seed, double most_work);

  DrawnTensor* add(DType type, const Extents& shape, const LayoutRules& rules);
  DrawnTensor* normal(DType type, const Extents& shape, const LayoutRules& rules, double magnitude);
  DrawnTensor* gate(const Extents& shape, GateKind strength, bool rows);
  DrawnTensor* indices(const Integers& values, const Extents& shape);
  /// NaN in every element of which `is_used` says no, where no other shares its memory.
  void spoil(DrawnTensor* tensor, FunctionRef<bool(std::int64_t)> is_used);

  GateKind gate_kind();
  /// A power of two, up to 2^most or one part in that.
  double magnitude(int most);
  void draw_heads();
  /// Either a layer, slopes or g_gamma [H] alone.
  void draw_lightning();
  void draw_gamma(const Extents& shape);
  std::optional<double> drawn_scale();
  /// 0 .. count - 1 in any order.
  Integers drawn_slots(std::int64_t count);

  double scale_value() const { return scale ? *scale : 1 / std::sqrt(static_cast<double>(K)); }
  /// The constant log decay of head h, by element `at` of its tensor.
  double gamma_value(std::int64_t h, std::int64_t at) const;
  /// A layer, slopes or g_gamma as they were drawn.
  template <class Options>
  void set_decay(Options& options) const {
    if (num_layers > 0) {
      options.layer_idx = layer_idx;
      options.num_layers = num_layers;
    } else {
      (slopes ? options.slopes : options.g_gamma) = given(gamma);
    }
  }

  static OptionalConstTensorView given(const DrawnTensor* tensor) {
    return tensor == nullptr ? OptionalConstTensorView{} : OptionalConstTensorView{tensor->view()};
  }
  static OptionalTensorView written(const DrawnTensor* tensor) {
    return tensor == nullptr ? OptionalTensorView{} : OptionalTensorView{tensor->view()};
  }
  static Values dense(const DrawnTensor* tensor) {
    return tensor == nullptr ? Values{} : tensor->inputs();
  }

  Draw draw;
  LayoutKind kind;
  DType dtype, state_dtype = DType::kF32;
  ops::CallOptions call;
  std::int64_t B = 1, T = 0, H = 1, Hkv = 1, K = 1, V = 1;
  std::list<DrawnTensor> tensors;
  DrawnTensor *q = nullptr, *k = nullptr, *v = nullptr, *g = nullptr, *gk = nullptr, *gv = nullptr,
              *gamma = nullptr;
  bool lightning = false, slopes = false;
  std::int64_t layer_idx = 0, num_layers = 0;
  std::optional<double> scale;
  StateRounding rounding;

 protected:
  double most_work_;
};

double rms(const Values& values);
/// The errors that recurrent_attention.hpp allows, as parts of a tensor's RMS.
double tolerance(DType dtype, bool allow_tf32 = false);

/// What products of scores of f16 with rows of `factor` may be off by where scores are small, as
/// recurrent_attention.hpp says: of `heads` heads that are added up.
double small_scores(DType dtype, const Values& factor, std::int64_t heads = 1);

/// Whether RMS error and worst element are what is allowed of an error, for a tensor of `dtype`. A
/// tensor with values beyond its type's range is not looked at.
void expect_close(const char* name, const Values& got, const Values& expected, double allowed_rms,
                  DType dtype = DType::kF32);

/// Slots of a pool, by their numbers.
using Slots = std::map<std::int64_t, Values>;

/// Of those that are expected the values, and of all others that they have kept their bits.
void expect_slots(const DrawnTensor& pool, std::int64_t slots, std::int64_t size,
                  const Slots& expected, double tolerated, DType dtype, const Values& got);

}  // namespace attune::test
