// One call of a serving engine on a layer, with tensors of its own: rows that decode a few tokens
// each, or a packed batch of prompts and rows. What makes its time is said here, so that lengths,
// slots and counts of accepted tokens are the same wherever it is timed.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string_view>
#include <vector>

#include <attune/core/op.hpp>
#include <attune/core/tensor.hpp>

namespace attune::cli {

/// Attention in bf16: as many heads of so many key and value channels.
struct LayerSizes {
  std::int64_t heads = 1, channels = 1;
};

/// Where the state behind accepted tokens comes from: recurrent_decode.hpp.
enum class StepWay { kPlain, kKept, kReplay };

struct ServingStep {
  std::int64_t rows = 0;    // that decode; 0: `lengths` are a packed batch
  std::int64_t tokens = 1;  // of each row
  StepWay way = StepWay::kPlain;
  std::vector<std::int64_t> lengths = {};  // of packed sequences
  bool has_pool = true;                    // else packed sequences have states of their own
  std::int64_t snapshot_every = 0;
  DType states = DType::kF32;
  bool gates_channels = false;  // gk in bf16; else a constant decay a head

  std::string_view op() const { return rows > 0 ? "recurrent_decode" : "recurrent_attention"; }
};

/// The ways to run the same batch without a mixed call: sequences of one token as rows that decode,
/// the others packed.
std::vector<ServingStep> parts_of(const ServingStep& mixed);

/// Makes equal cases of a step on `device`, one a call. `op` is the step's.
std::function<std::unique_ptr<Case>()> case_maker(const ServingStep& step, const LayerSizes& layer,
                                                  const OpInfo& op, const Device& device);

}  // namespace attune::cli
