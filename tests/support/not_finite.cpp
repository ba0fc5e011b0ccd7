#include "support/not_finite.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <optional>
#include <string_view>

#include <gtest/gtest.h>

#include <attune/core/params.hpp>
#include <attune/ops/recurrent_attention_op.hpp>
#include <attune/ops/recurrent_decode_op.hpp>

namespace attune::test {
namespace {

using ops::RecurrentAttention;
using ops::RecurrentAttentionBackward;
using ops::RecurrentDecode;

constexpr std::byte kPoison{0x4b};

struct Input {
  std::string name;
  ConstTensorView view;  // [..., heads] or [..., heads, channels]
  int head_dim = 0;
};

/// What all ops' cases have in common here.
struct Shape {
  std::vector<Input> inputs = {};
  std::vector<std::int64_t> sequence_of_row = {};
  std::vector<std::int64_t> sequence_of_state = {};  // -1: no row's
  std::int64_t group = 1;                            // query heads of a key and value head
  bool reverse = false;
};

void add(std::vector<Input>& inputs, const char* name, const std::optional<ConstTensorView>& view,
         int head_dim) {
  if (view) inputs.push_back({name, *view, head_dim});
}

template <class Args>
void add_inputs(std::vector<Input>& inputs, const Args& args, int head_dim) {
  add(inputs, "q", args.q, head_dim);
  add(inputs, "k", args.k, head_dim);
  add(inputs, "v", args.v, head_dim);
  add(inputs, "g", args.g, head_dim);
  add(inputs, "gk", args.gk, head_dim);
  add(inputs, "gv", args.gv, head_dim);
}

std::vector<std::int64_t> integers(const std::optional<ConstTensorView>& view,
                                   const Device& device) {
  if (!view) return {};
  std::vector<std::int64_t> values;
  for (const double value : to_doubles(to_host(*view, device).view())) {
    values.push_back(static_cast<std::int64_t>(value));
  }
  return values;
}

template <class Args>
Shape attention_shape(const ops::RecurrentAttentionProblem& problem, const Args& args,
                      const Device& device) {
  Shape shape{.group = problem.H / problem.Hkv, .reverse = problem.reverse};
  add_inputs(shape.inputs, args, 2);
  const std::vector<std::int64_t> bounds = integers(args.cu_seqlens, device);
  for (std::int64_t n = 0; n < problem.sequences(); ++n) {
    const std::int64_t tokens = bounds.empty() ? problem.T : bounds[n + 1] - bounds[n];
    shape.sequence_of_row.insert(shape.sequence_of_row.end(), static_cast<std::size_t>(tokens), n);
    shape.sequence_of_state.push_back(n);
  }
  return shape;
}

Shape decode_shape(const ops::RecurrentDecodeProblem& problem, const ops::RecurrentDecodeArgs& args,
                   const Device& device) {
  Shape shape{.group = problem.H / problem.Hkv};
  add_inputs(shape.inputs, args, 1);
  std::vector<std::int64_t> slots = integers(args.slot_indices, device);
  shape.sequence_of_state.assign(static_cast<std::size_t>(problem.S), -1);
  for (std::int64_t row = 0; row < problem.B; ++row) {
    shape.sequence_of_row.push_back(row);
    const std::int64_t slot = slots.empty() ? row : slots[static_cast<std::size_t>(row)];
    if (slot >= 0) shape.sequence_of_state[static_cast<std::size_t>(slot)] = row;
  }
  return shape;
}

Shape shape_of(const OpInfo& op, const Case& inputs, const Device& device) {
  if (op.name == RecurrentDecode::kName) {
    return decode_shape(inputs.problem().as<RecurrentDecode>(),
                        *static_cast<const ops::RecurrentDecodeArgs*>(inputs.args()), device);
  }
  if (op.name == RecurrentAttention::kName) {
    return attention_shape(inputs.problem().as<RecurrentAttention>(),
                           *static_cast<const ops::RecurrentAttentionArgs*>(inputs.args()), device);
  }
  const auto& args = *static_cast<const ops::RecurrentAttentionBackwardArgs*>(inputs.args());
  Shape shape = attention_shape(inputs.problem().as<RecurrentAttentionBackward>(), args, device);
  add(shape.inputs, "do", args.d_o, 2);
  return shape;
}

bool is_state(const std::string& output) {
  return output == "final_state" || output == "dinitial_state" || output == "kv_cache" ||
         output == "state";
}

/// Sums over the tokens of a sequence, or over all sequences.
bool is_sum(const std::string& output) { return output == "dg_gamma"; }

bool is_of_kv_heads(const std::string& tensor) {
  return tensor == "k" || tensor == "v" || tensor == "dk" || tensor == "dv";
}

std::array<std::byte, 4> bytes_of(DType dtype, float value) {
  std::array<std::byte, 4> bytes{};
  const f16 half(value);
  const bf16 brain(value);
  if (dtype == DType::kF32) std::memcpy(bytes.data(), &value, sizeof value);
  if (dtype == DType::kF16) std::memcpy(bytes.data(), &half, sizeof half);
  if (dtype == DType::kBF16) std::memcpy(bytes.data(), &brain, sizeof brain);
  return bytes;
}

/// One element of an input that is another value as long as this lives. A case owns its inputs, and
/// shows them as const.
class SpoiltElement {
 public:
  SpoiltElement(const Input& input, const SpoiltInput& spoilt, const Device& device)
      : device_(device), bytes_(size_of(input.view.dtype)) {
    const ConstTensorView& view = input.view;
    std::int64_t offset = spoilt.head * view.stride(input.head_dim);
    if (input.head_dim == 1) {
      offset += spoilt.row * view.stride(0);
    } else {
      offset += spoilt.row / view.size(1) * view.stride(0);
      offset += spoilt.row % view.size(1) * view.stride(1);
    }
    at_ = static_cast<std::byte*>(const_cast<void*>(view.data)) +
          offset * static_cast<std::int64_t>(bytes_);
    device_.copy_to_host(before_.data(), at_, bytes_, nullptr);
    device_.synchronize(nullptr);
    set(bytes_of(view.dtype, spoilt.value));
  }
  ~SpoiltElement() { set(before_); }
  SpoiltElement(const SpoiltElement&) = delete;
  SpoiltElement& operator=(const SpoiltElement&) = delete;

 private:
  void set(const std::array<std::byte, 4>& bytes) {
    device_.copy_to_device(at_, bytes.data(), bytes_, nullptr);
    device_.synchronize(nullptr);
  }

  const Device& device_;
  std::size_t bytes_ = 0;
  std::byte* at_ = nullptr;
  std::array<std::byte, 4> before_{};
};

}  // namespace

struct SpoiltCase::Parts {
  KernelOnDevice on;
  std::unique_ptr<Case> inputs;
  Shape shape;
  std::map<std::string, TensorMap> clean;  // by config

  const Input& input(const std::string& name) const {
    return *std::ranges::find(shape.inputs, name, &Input::name);
  }
  TensorMap run(const ConfigBlob& config) { return run_on(*inputs, on, config, kPoison); }
};

SpoiltCase::SpoiltCase(const KernelOnDevice& on, ProblemRef problem, std::uint64_t seed)
    : parts_(std::make_unique<Parts>()) {
  parts_->on = on;
  parts_->inputs = on.op->make_case(problem, *on.device, seed);
  parts_->shape = shape_of(*on.op, *parts_->inputs, *on.device);
}
SpoiltCase::~SpoiltCase() = default;

std::vector<std::string> SpoiltCase::inputs() const {
  std::vector<std::string> names;
  for (const Input& input : parts_->shape.inputs) names.push_back(input.name);
  return names;
}

std::int64_t SpoiltCase::rows() const {
  return static_cast<std::int64_t>(parts_->shape.sequence_of_row.size());
}

std::int64_t SpoiltCase::heads_of(const std::string& name) const {
  const Input& input = parts_->input(name);
  return input.view.size(input.head_dim);
}

std::int64_t SpoiltCase::sequence_of(std::int64_t row) const {
  return parts_->shape.sequence_of_row[static_cast<std::size_t>(row)];
}

namespace {

double rms(const double* values, std::int64_t count) {
  double squares = 0;
  for (std::int64_t i = 0; i < count; ++i) squares += values[i] * values[i];
  return std::sqrt(squares / static_cast<double>(count));
}

/// How the rows of an output lie; a row is what a token or a state has for one head.
struct RowsOf {
  std::int64_t heads = 1;
  std::int64_t width = 1;
};

RowsOf rows_of(const std::string& output, const Extents& shape, bool is_decode) {
  const int head_dim = is_sum(output) ? 0 : is_decode || is_state(output) ? 1 : 2;
  RowsOf rows{.heads = shape[head_dim]};
  for (int dim = head_dim + 1; dim < shape.rank(); ++dim) rows.width *= shape[dim];
  return rows;
}

void add_changed_rows(const std::string& name, const Tensor& before, const Tensor& after,
                      bool is_decode, std::vector<ReachedRow>& changed) {
  // Twice what an element is rounded by, of the size of the tensor's.
  const double rounding = before.dtype() == DType::kF32 ? 2e-5 : 1e-2;
  const RowsOf rows = rows_of(name, before.shape(), is_decode);
  const std::vector<double> a = to_doubles(before.view()), b = to_doubles(after.view());
  const double size = rms(a.data(), static_cast<std::int64_t>(a.size()));
  std::vector<double> difference(static_cast<std::size_t>(rows.width));
  for (std::size_t first = 0; first < a.size(); first += difference.size()) {
    if (std::memcmp(&a[first], &b[first], difference.size() * sizeof(double)) == 0) continue;
    for (std::size_t i = 0; i < difference.size(); ++i) difference[i] = b[first + i] - a[first + i];
    const double error = rms(difference.data(), rows.width);
    const std::int64_t place = static_cast<std::int64_t>(first) / rows.width;
    changed.push_back({.output = name,
                       .row = place / rows.heads,
                       .head = place % rows.heads,
                       .is_spoilt = !(error <= rounding * size)});  // a NaN is not
  }
}

}  // namespace

std::vector<ReachedRow> SpoiltCase::reached(const ConfigBlob& config, const SpoiltInput& spoilt) {
  Parts& p = *parts_;
  const std::string text = config_text(*p.on.kernel, config);
  auto clean = p.clean.find(text);
  if (clean == p.clean.end()) clean = p.clean.emplace(text, p.run(config)).first;

  const SpoiltElement element(p.input(spoilt.name), spoilt, *p.on.device);
  const TensorMap outputs = p.run(config);
  std::vector<ReachedRow> changed;
  const bool is_decode = p.on.op->name == RecurrentDecode::kName;
  for (const auto& [name, after] : outputs) {
    add_changed_rows(name, clean->second.at(name), after, is_decode, changed);
  }
  return changed;
}

std::int64_t SpoiltCase::wrong_way(const SpoiltInput& spoilt, const ReachedRow& reached) const {
  const std::string& output = reached.output;
  const bool goes_on = output == "o" || output == "dq";
  const bool goes_back = output == "dk" || output == "dv";
  if (!goes_on && !goes_back) return 0;
  const std::int64_t before = (spoilt.row - reached.row) * (parts_->shape.reverse ? -1 : 1);
  return std::max<std::int64_t>(0, goes_on ? before : -before);
}

bool SpoiltCase::is_allowed(const SpoiltInput& spoilt, const ReachedRow& reached,
                            std::int64_t reach) const {
  const Shape& shape = parts_->shape;
  const auto kv_head = [&](const std::string& tensor, std::int64_t head) {
    return is_of_kv_heads(tensor) ? head : head / shape.group;
  };
  const bool of_group = is_of_kv_heads(spoilt.name) || is_of_kv_heads(reached.output);
  const bool same_head =
      of_group ? kv_head(spoilt.name, spoilt.head) == kv_head(reached.output, reached.head)
               : spoilt.head == reached.head;
  if (!same_head) return false;
  if (is_sum(reached.output)) return true;
  const std::vector<std::int64_t>& sequences =
      is_state(reached.output) ? shape.sequence_of_state : shape.sequence_of_row;
  if (sequences[static_cast<std::size_t>(reached.row)] != sequence_of(spoilt.row)) return false;
  return !reached.is_spoilt || wrong_way(spoilt, reached) <= reach;
}

namespace {

/// Both kinds of batches, both directions, all kinds of gates.
std::vector<std::string> problems_of(const OpInfo& op) {
  if (op.name == RecurrentDecode::kName) {
    return {"B=5 S=7 dtype=f32", "B=5 S=7 dtype=bf16 gate=gk", "B=5 S=7 dtype=bf16 gate=g+gamma",
            "B=5 S=7 dtype=f32 gate=gv slots=no", "B=5 S=7 dtype=f32 gate=g+gamma+gk+gv"};
  }
  std::vector<std::string> problems{"B=2 T=80 dtype=f32",
                                    "N=3 T=150 dtype=bf16 reverse=yes",
                                    "N=3 T=150 dtype=f32 gate=g reverse=yes",
                                    "B=2 T=80 dtype=bf16 gate=g+gamma",
                                    "N=3 T=150 dtype=bf16 gate=gamma",
                                    "B=2 T=80 dtype=f32 gate=gk reverse=yes",
                                    "N=3 T=150 dtype=bf16 gate=gk",
                                    "N=3 T=150 dtype=f32 gate=gv",
                                    "B=2 T=80 dtype=bf16 gate=gv reverse=yes",
                                    "N=3 T=150 dtype=bf16 gate=g+gk",
                                    "B=2 T=80 dtype=f32 gate=g+gamma+gk+gv"};
  for (std::string& problem : problems) problem += " h0=yes ht=yes";
  return problems;
}

/// The heuristic's, and what else decides which tokens are handled together.
std::vector<ConfigBlob> configs_with_all_chunks(const KernelOnDevice& on, ProblemRef problem,
                                                const DeviceInfo& info) {
  std::vector<ConfigBlob> configs{on.kernel->erased_heuristic(problem, info)};
  for (const AxisInfo& axis : on.kernel->axes()) {
    const bool decides =
        axis.name == "chunk" || axis.name.starts_with("tokens") || axis.name == "isa";
    if (!decides) continue;
    for (const ConfigBlob& config : configs_along(on, problem, axis)) configs.push_back(config);
  }
  return configs;
}

/// In the midst of chunks, at their ends, and on either side of where one sequence ends.
std::vector<std::int64_t> rows_to_spoil(const SpoiltCase& spoilt) {
  std::vector<std::int64_t> rows{0, 37, 63, spoilt.rows() - 1};
  for (std::int64_t row = 1; row < spoilt.rows(); ++row) {
    if (spoilt.sequence_of(row) != spoilt.sequence_of(row - 1)) {
      rows.push_back(row - 1);
      rows.push_back(row);
      break;
    }
  }
  std::erase_if(rows, [&](std::int64_t row) { return row >= spoilt.rows(); });
  return rows;
}

void expect_only_the_allowed_is_reached(SpoiltCase& spoilt, const ConfigBlob& config) {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  int count = 0;
  for (const std::string& input : spoilt.inputs()) {
    for (const std::int64_t row : rows_to_spoil(spoilt)) {
      const SpoiltInput place{.name = input,
                              .row = row,
                              .head = spoilt.heads_of(input) - 1,
                              .value = ++count % 2 == 0 ? kNan : kInfinity};
      const std::vector<ReachedRow> reached = spoilt.reached(config, place);
      EXPECT_FALSE(reached.empty()) << place << " changes nothing";
      for (const ReachedRow& changed : reached) {
        ASSERT_TRUE(spoilt.is_allowed(place, changed, kChunkReach))
            << place << " reaches " << changed;
      }
    }
  }
}

}  // namespace

int expect_only_the_allowed_is_reached(const KernelOnDevice& on, const DeviceInfo& info) {
  int count = 0;
  for (const std::string& text : problems_of(*on.op)) {
    const AnyProblem problem = on.op->parse(parse_params(str(text, " H=4 Hkv=2 K=64 V=64"), ' '));
    if (!on.kernel->erased_supports(problem, info)) continue;
    SpoiltCase spoilt(on, problem, 1);
    for (const ConfigBlob& config : configs_with_all_chunks(on, problem, info)) {
      SCOPED_TRACE(str(on, ", ", text, ", ", config_text(*on.kernel, config)));
      expect_only_the_allowed_is_reached(spoilt, config);
      ++count;
    }
  }
  return count;
}

}  // namespace attune::test
