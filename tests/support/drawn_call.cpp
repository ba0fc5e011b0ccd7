#include "support/drawn_call.hpp"

#include <algorithm>
#include <iterator>
#include <limits>
#include <numeric>

#include <gtest/gtest.h>

namespace attune::test {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

/// What a type has no digits for.
double least_of(DType dtype) { return dtype == DType::kF16 ? 0x1p-25 : 1e-37; }

bool overflows(DType dtype, const Values& values) {
  return dtype == DType::kF16 &&
         std::ranges::any_of(values, [](double v) { return std::abs(v) > 6e4; });
}

}  // namespace

double drawn_gate(Draw& draw, GateKind kind) {
  const double normal = std::abs(draw.normal());
  switch (kind) {
    case GateKind::kWeak:
      return -0.05 * normal;
    case GateKind::kMiddling:
      return -normal;
    case GateKind::kStrong:
      return -12 * normal;
    case GateKind::kZero:
      return 0;
    case GateKind::kGrowing:
      return 0.01 * draw.normal();
    case GateKind::kMixed:
      break;
  }
  constexpr double kExtremes[] = {0, -100, -1e30, -kInf, -3.4e38, -1e-30, -88, -104};
  return draw.one_in(6) ? draw.one_of(kExtremes) : -0.1 * normal;
}

DrawnCall::DrawnCall(std::uint64_t seed, double most_work) : draw(seed), most_work_(most_work) {
  constexpr LayoutKind kKinds[] = {LayoutKind::kDense, LayoutKind::kDense, LayoutKind::kHeadsFirst,
                                   LayoutKind::kAny,   LayoutKind::kAny,   LayoutKind::kAny};
  kind = draw.one_of(kKinds);
  dtype = draw.one_of(kFloatTypes);
  call.allow_tf32 = draw.one_in(4);
}

DrawnTensor* DrawnCall::add(DType type, const Extents& shape, const LayoutRules& rules) {
  return &tensors.emplace_back(draw, kind, type, shape, rules);
}

DrawnTensor* DrawnCall::normal(DType type, const Extents& shape, const LayoutRules& rules,
                               double magnitude) {
  DrawnTensor* const made = add(type, shape, rules);
  for (std::int64_t i = 0; i < made->count(); ++i) made->set(i, magnitude * draw.normal());
  return made;
}

DrawnTensor* DrawnCall::gate(const Extents& shape, GateKind strength, bool rows) {
  DrawnTensor* const made = add(draw.one_in(3) ? dtype : DType::kF32, shape, {rows, true});
  for (std::int64_t i = 0; i < made->count(); ++i) made->set(i, drawn_gate(draw, strength));
  return made;
}

DrawnTensor* DrawnCall::indices(const Integers& values, const Extents& shape) {
  DrawnTensor* const made = add(draw.one_in(2) ? DType::kI32 : DType::kI64, shape, {});
  for (std::int64_t i = 0; i < made->count(); ++i) {
    made->set_integer(i, values[static_cast<std::size_t>(i)]);
  }
  return made;
}

void DrawnCall::spoil(DrawnTensor* tensor, FunctionRef<bool(std::int64_t)> is_used) {
  if (tensor == nullptr) return;
  const Values values = tensor->inputs();
  for (const bool used : {false, true}) {  // an element of memory may stand for both
    for (std::int64_t i = 0; i < tensor->count(); ++i) {
      if (is_used(i) == used) tensor->set(i, used ? values[static_cast<std::size_t>(i)] : kNaN);
    }
  }
}

GateKind DrawnCall::gate_kind() {
  return static_cast<GateKind>(draw.between(0, static_cast<int>(GateKind::kGrowing)));
}

double DrawnCall::magnitude(int most) {
  if (draw.one_in(2)) return 1;
  const int bound = dtype == DType::kF16 ? std::min(most, 5) : most;
  return std::ldexp(1.0, static_cast<int>(draw.between(-bound, bound)));
}

void DrawnCall::draw_heads() {
  constexpr std::int64_t kGroups[] = {1, 1, 2, 3, 4};
  constexpr std::int64_t kChannels[] = {1,   2,   3,   5,   8,   16,  20,  31,  32,  33,  36,
                                        48,  63,  64,  64,  64,  65,  80,  96,  100, 128, 128,
                                        129, 160, 192, 200, 256, 257, 311, 320, 512};
  Hkv = draw.between(1, 3);
  H = Hkv * draw.one_of(kGroups);
  K = draw.one_of(kChannels);
  V = draw.one_of(kChannels);
  while (static_cast<double>(H * K * V) > most_work_) {
    K = (K + 1) / 2;
    V = (V + 1) / 2;
  }
}

void DrawnCall::draw_gamma(const Extents& shape) {
  gamma = add(DType::kF32, shape, {.repeats = true});
  const GateKind kind_of_gate = gate_kind();
  for (std::int64_t i = 0; i < gamma->count(); ++i) {
    gamma->set(i, (slopes ? -1 : 1) * drawn_gate(draw, kind_of_gate));
  }
}

void DrawnCall::draw_lightning() {
  lightning = true;
  if (draw.one_in(3)) {
    num_layers = draw.between(1, 9);
    layer_idx = draw.between(0, num_layers);
  } else {
    slopes = draw.one_in(2);
    draw_gamma({H});
  }
}

std::optional<double> DrawnCall::drawn_scale() {
  constexpr double kScales[] = {1, -0.3, 0, 0x1p-20, 3};
  return draw.one_in(2) ? std::nullopt : std::optional(draw.one_of(kScales));
}

Integers DrawnCall::drawn_slots(std::int64_t count) {
  Integers slots(static_cast<std::size_t>(count));
  std::iota(slots.begin(), slots.end(), 0);
  std::shuffle(slots.begin(), slots.end(), draw.bits());
  return slots;
}

double DrawnCall::gamma_value(std::int64_t h, std::int64_t at) const {
  if (num_layers > 0) {
    const double depth = static_cast<double>(layer_idx) / static_cast<double>(num_layers);
    return -8.0 / static_cast<double>(H) * (1 - depth) * static_cast<double>(h);
  }
  if (gamma == nullptr) return 0;
  const double value = gamma->input(at);
  return slopes ? -value : value;
}

double rms(const Values& values) {
  double sum = 0;
  for (const double v : values) sum += v * v;
  return values.empty() ? 0 : std::sqrt(sum / static_cast<double>(values.size()));
}

double tolerance(DType dtype, bool allow_tf32) {
  return dtype == DType::kF32 && !allow_tf32 ? 2e-5 : 5e-3;
}

double small_scores(DType dtype, const Values& factor, std::int64_t heads) {
  constexpr double kTokensAtOnce = 64;
  if (dtype != DType::kF16) return 0;
  Values given;  // rows of padding are NaN
  std::ranges::copy_if(factor, std::back_inserter(given), [](double v) { return !std::isnan(v); });
  return least_of(dtype) * std::sqrt(kTokensAtOnce * static_cast<double>(heads)) * rms(given);
}

void expect_close(const char* name, const Values& got, const Values& expected, double allowed_rms,
                  DType dtype) {
  constexpr double kWorst = 40;  // of elements that are normally distributed, and then some
  ASSERT_EQ(got.size(), expected.size()) << name;
  if (got.empty() || overflows(dtype, expected)) return;
  Values errors(got.size());
  for (std::size_t i = 0; i < got.size(); ++i) errors[i] = std::abs(got[i] - expected[i]);
  // A NaN counts as the worst.
  const auto worst = std::ranges::max_element(
      errors, [](double a, double b) { return !std::isnan(a) && !(b <= a); });
  const auto at = static_cast<std::size_t>(worst - errors.begin());
  const double allowed = allowed_rms + least_of(dtype);
  EXPECT_TRUE(rms(errors) <= allowed && *worst <= kWorst * allowed)
      << name << ": RMS error " << rms(errors) << ", allowed " << allowed << ", of RMS "
      << rms(expected) << "; worst is element " << at << " of " << got.size() << ", " << got[at]
      << " for " << expected[at];
}

void expect_slots(const DrawnTensor& pool, std::int64_t slots, std::int64_t size,
                  const Slots& expected, double tolerated, DType dtype, const Values& got) {
  const std::vector<std::byte> now = pool.now();
  Values written, wanted;
  for (std::int64_t s = 0; s < slots; ++s) {
    if (const auto found = expected.find(s); found != expected.end()) {
      wanted.insert(wanted.end(), found->second.begin(), found->second.end());
      written.insert(written.end(), got.begin() + s * size, got.begin() + (s + 1) * size);
      continue;
    }
    std::int64_t kept = 0;
    while (kept < size && pool.is_unchanged(s * size + kept, now)) ++kept;
    EXPECT_EQ(kept, size) << "slot " << s << ", which was not named, is changed";
  }
  expect_close("states", written, wanted, tolerated * rms(wanted), dtype);
}

}  // namespace attune::test
