// The model that is served: layers that remember what came after what. At token t, layer l writes
// the token's value under the key of the token l + 1 before it, and reads under the key of the one
// l before it: an induction head, by lightning attention, that says what came next the last times.
// It needs no training, only keys and values that differ.
#pragma once

#include <cmath>
#include <numeric>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include <attune/attune.hpp>
#include <attune/io/safetensors.hpp>

namespace serve {

using namespace attune;

using Floats = std::vector<float>;
using Integers = std::vector<std::int32_t>;

/// Token `at` of a sequence, in row `row` of a batch.
struct Place {
  const Integers* tokens = nullptr;
  std::size_t at = 0, row = 0;
};

struct Model {
  static constexpr std::int64_t kLayers = 2, kHeads = 4, kChannels = 64, kVocabulary = 256;
  static constexpr std::size_t kWidth = kHeads * kChannels;

  /// "key" and "value" [layers, vocabulary, width] of a file; random ones without.
  explicit Model(const std::string& path = "") {
    if (!path.empty()) weights = io::read_safetensors(path);
    const Extents shape{kLayers, kVocabulary, kWidth};
    std::mt19937 random(5);
    std::normal_distribution<float> normal(0, 1 / std::sqrt(float{kChannels}));
    for (const char* const name : {"key", "value"}) {
      Tensor& table = weights.tensors[name];
      if (path.empty()) {
        table = Tensor(DType::kF32, shape);
        for (float& weight : table.values<float>()) weight = normal(random);
      } else if (table.dtype() != DType::kF32 || table.shape() != shape) {
        throw InvalidArgument(str(path, ": ", name, ": expected f32 ", shape));
      }
    }
  }

  const float* row(const char* table, std::size_t layer, std::int32_t token) const {
    const auto index = layer * kVocabulary + static_cast<std::size_t>(token);
    return weights.tensors.find(table)->second.values<float>().data() + index * kWidth;
  }

  /// q, k or v ("qkv", "kv") of tokens: [layers, parts, rows, width], zero where no place is.
  Floats gather(const std::vector<Place>& places, std::string_view parts, std::size_t rows) const {
    Floats all(kLayers * parts.size() * rows * kWidth);
    float* block = all.data();
    for (std::size_t layer = 0; layer < kLayers; ++layer) {
      for (const char part : parts) {
        for (const auto& [tokens, at, to] : places) {
          const std::size_t back = part == 'v' ? 0 : part == 'k' ? layer + 1 : layer;
          if (at < back) continue;
          const char* const table = part == 'v' ? "value" : "key";
          std::copy_n(row(table, layer, (*tokens)[at - back]), kWidth, block + to * kWidth);
        }
        block += rows * kWidth;
      }
    }
    return all;
  }

  /// Of the token that follows row `at` of o, [layers, rows, width].
  Floats logits(const Floats& o, std::size_t rows, std::size_t at) const {
    Floats sums;
    for (std::int32_t token = 0; token < kVocabulary; ++token) {
      float partial[16] = {};  // which the compiler keeps in registers
      for (std::size_t layer = 0; layer < kLayers; ++layer) {
        const float* const read = o.data() + (layer * rows + at) * kWidth;
        const float* const value = row("value", layer, token);
        for (std::size_t i = 0; i < kWidth; i += 16) {
          for (std::size_t j = 0; j < 16; ++j) partial[j] += read[i + j] * value[i + j];
        }
      }
      sums.push_back(std::accumulate(partial, partial + 16, 0.0F));
    }
    return sums;
  }

  /// Of the tokens behind `first` and after, by one plain recurrence over all of them.
  Floats plain_logits(const Integers& tokens, std::size_t first) const {
    const std::size_t count = tokens.size(), each = count * kWidth;
    std::vector<Place> places;
    for (std::size_t t = 0; t < count; ++t) places.push_back({&tokens, t, t});
    const Floats in = gather(places, "qkv", count);
    Floats o(kLayers * each), all;
    const Extents shape{1, static_cast<std::int64_t>(count), kHeads, kChannels};
    for (std::size_t layer = 0; layer < kLayers; ++layer) {
      const float* const q = in.data() + 3 * layer * each;
      const Floats decay = slopes(layer);
      ops::lightning_attention_into(
          {.o = {o.data() + layer * each, shape}}, {q, shape}, {q + each, shape},
          {q + 2 * each, shape},
          {.slopes = {{decay.data(), {kHeads}}}, .call = {.platform = "reference"}});
    }
    for (std::size_t t = first; t + 1 < count; ++t) {
      const Floats of_one = logits(o, count, t);
      all.insert(all.end(), of_one.begin(), of_one.end());
    }
    return all;
  }

  static Floats slopes(std::size_t layer) {
    return ops::minimax_slopes(kHeads, static_cast<std::int64_t>(layer), kLayers);
  }

  io::TensorFile weights = {};
};

}  // namespace serve
