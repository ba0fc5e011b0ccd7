#include "suites/serving_step.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <utility>

namespace attune::cli {
namespace {

constexpr DType kInputs = DType::kBF16;
constexpr float kLogDecay = -0.05F;  // a token

/// `pattern`, rounded to `dtype`, over and over: gigabytes of states are made in the time of a
/// copy.
Tensor repeated(const std::vector<float>& pattern, DType dtype, const Extents& shape) {
  std::vector<bf16> narrow;
  for (const float value : pattern) narrow.emplace_back(value);
  const bool is_f32 = dtype == DType::kF32;
  const void* const from = is_f32 ? static_cast<const void*>(pattern.data()) : narrow.data();
  Tensor tensor(dtype, shape);
  auto* const to = static_cast<std::byte*>(tensor.view().data);
  const std::size_t piece = pattern.size() * size_of(dtype);
  for (std::size_t at = 0; at < tensor.bytes(); at += piece) {
    std::memcpy(to + at, from, std::min(piece, tensor.bytes() - at));
  }
  return tensor;
}

std::vector<float> normal_values() {
  constexpr std::size_t kDifferent = 65'521;  // a prime: rows differ
  std::mt19937 random(1);
  std::normal_distribution<float> normal(0, 0.1F);
  std::vector<float> values(kDifferent);
  for (float& value : values) value = normal(random);
  return values;
}

Tensor random_values(DType dtype, const Extents& shape) {
  return repeated(normal_values(), dtype, shape);
}

Tensor log_decays(const Extents& shape) {
  std::vector<float> values = normal_values();
  for (float& value : values) value = -std::abs(value);
  return repeated(values, kInputs, shape);
}

Tensor indices(const std::vector<std::int32_t>& values, const Extents& shape) {
  return Tensor::of(values, shape);
}

/// The slots of a pool of `count`, in no order.
std::vector<std::int32_t> shuffled_slots(std::int64_t count) {
  std::vector<std::int32_t> slots(static_cast<std::size_t>(count));
  std::iota(slots.begin(), slots.end(), 0);
  std::mt19937 random(2);
  std::shuffle(slots.begin(), slots.end(), random);
  return slots;
}

/// 1 to `most`, in turn: a step accepts its first token always.
std::vector<std::int32_t> accepted_counts(std::int64_t rows, std::int64_t most) {
  std::vector<std::int32_t> counts;
  for (std::int64_t row = 0; row < rows; ++row) {
    counts.push_back(static_cast<std::int32_t>(1 + row % most));
  }
  return counts;
}

/// Tensors by the names that files have.
class StepTensors {
 public:
  StepTensors(const ServingStep& step, const LayerSizes& layer) : step_(step), layer_(layer) {
    step.rows > 0 ? add_decode() : add_packed();
    if (step.gates_channels) return;
    const std::vector<float> decay(static_cast<std::size_t>(layer.heads), kLogDecay);
    add("g_gamma", Tensor::of(decay, {layer.heads}));
  }

  TensorMap take() && { return std::move(tensors_); }

 private:
  void add(std::string_view name, Tensor tensor) {
    tensors_.emplace(std::string(name), std::move(tensor));
  }
  void add_states(std::string_view name, std::int64_t count) {
    add(name, random_values(step_.states, {count, layer_.heads, layer_.channels, layer_.channels}));
  }

  void add_decode() {
    const std::int64_t rows = step_.rows, tokens = step_.tokens;
    const Extents several{rows, tokens, layer_.heads, layer_.channels};
    const Extents one{rows, layer_.heads, layer_.channels};
    const Extents& shape = tokens == 1 ? one : several;
    for (const char* const name : {"q", "k", "v"}) add(name, random_values(kInputs, shape));
    if (step_.gates_channels) add("gk", log_decays(shape));
    const std::int64_t slots = step_.way == StepWay::kKept ? rows * tokens : rows;
    add_states("kv_cache", slots);
    if (step_.way == StepWay::kKept) {
      add("kept_slots", indices(shuffled_slots(slots), {rows, tokens}));
      add("accepted", indices(accepted_counts(rows, tokens), {rows}));
      return;
    }
    add("slot_indices", indices(shuffled_slots(slots), {rows}));
    if (step_.way == StepWay::kPlain) return;
    add("committed.k", random_values(kInputs, several));
    add("committed.v", random_values(kInputs, several));
    if (step_.gates_channels) add("committed.gk", log_decays(several));
    add("committed.accepted", indices(accepted_counts(rows, tokens), {rows}));
  }

  void add_packed() {
    const auto count = static_cast<std::int64_t>(step_.lengths.size());
    std::vector<std::int32_t> bounds{0};
    for (const std::int64_t length : step_.lengths) {
      bounds.push_back(bounds.back() + static_cast<std::int32_t>(length));
    }
    const Extents shape{1, bounds.back(), layer_.heads, layer_.channels};
    for (const char* const name : {"q", "k", "v"}) add(name, random_values(kInputs, shape));
    if (step_.gates_channels) add("gk", log_decays(shape));
    add("cu_seqlens", indices(bounds, {count + 1}));
    step_.has_pool ? add_pool(count) : add_states("initial_state", count);
  }

  /// Each sequence goes on in its own slot, and its snapshots go to others.
  void add_pool(std::int64_t count) {
    const std::int64_t every = step_.snapshot_every;
    const std::int64_t longest = *std::ranges::max_element(step_.lengths);
    const std::int64_t most = every > 0 ? longest / every : 0;
    std::int64_t all = count;
    for (const std::int64_t length : step_.lengths) all += every > 0 ? length / every : 0;
    std::vector<std::int32_t> unused = shuffled_slots(all);
    const auto take = [&] {
      const std::int32_t slot = unused.back();
      unused.pop_back();
      return slot;
    };
    std::vector<std::int32_t> own, snapshots;
    for (const std::int64_t length : step_.lengths) {
      own.push_back(take());
      for (std::int64_t i = 0; i < most; ++i) {
        snapshots.push_back(i < length / every ? take() : -1);
      }
    }
    add_states("states", all);
    add("initial_slots", indices(own, {count}));
    add("final_slots", indices(own, {count}));
    if (every > 0) add("snapshot_slots", indices(snapshots, {count, most}));
  }

  const ServingStep& step_;
  const LayerSizes& layer_;
  TensorMap tensors_;
};

}  // namespace

std::vector<ServingStep> parts_of(const ServingStep& mixed) {
  ServingStep prompts = mixed, rows;
  std::erase(prompts.lengths, 1);
  rows.rows = static_cast<std::int64_t>(mixed.lengths.size() - prompts.lengths.size());
  rows.states = mixed.states;
  rows.gates_channels = mixed.gates_channels;
  return {prompts, rows};
}

std::function<std::unique_ptr<Case>()> case_maker(const ServingStep& step, const LayerSizes& layer,
                                                  const OpInfo& op, const Device& device) {
  Attributes attributes;
  if (step.snapshot_every > 0) attributes["snapshot_every"] = std::to_string(step.snapshot_every);
  const auto made = std::make_shared<const TensorMap>(StepTensors(step, layer).take());
  return [made, attributes, &op, &device] { return op.bind_case(*made, attributes, device); };
}

}  // namespace attune::cli
