// What a call of cuda.chunk_mma queues, and the memory that its launches pass results in.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <span>

#include "cuda/chunk_mma/blocks.hpp"
#include "cuda/chunks/plane_sums.hpp"
#include "cuda/chunks/segment_starts.hpp"
#include "cuda/pairs/short_sequences.hpp"
#include "cuda/runtime/dispatch.hpp"
#include "cuda/runtime/workspace_parts.hpp"
#include "cuda/walks/walk.hpp"

namespace attune::cuda::chunk_mma {

/// What channel_operands.hpp makes for gates of key channels, or of value channels.
struct OperandsMemory {
  float* reads = nullptr;
  float* writes = nullptr;
  float2* totals = nullptr;
  int* is_strong = nullptr;

  static std::int64_t chunk_count(const Problem& problem) {
    return part_count(problem.sequences(), problem.T, problem.N > 0, kSplitChunk);
  }
  void take(WorkspaceParts& parts, const Problem& problem, std::int64_t channels,
            std::int64_t padded_channels) {
    const std::int64_t row = operand_channels(channels) * std::int64_t{sizeof(float)};
    const std::int64_t rows = problem.B * problem.T * problem.H;
    const std::int64_t chunks = chunk_count(problem) * problem.H;
    reads = parts.take<float>(rows * row);
    writes = parts.take<float>(rows * row);
    totals = parts.take<float2>(chunks * padded_channels * std::int64_t{sizeof(float2)});
    is_strong = parts.take<int>(chunks * operand_groups(channels) * std::int64_t{sizeof(int)});
  }
};

/// What a launch has in the workspace.
struct Workspace {
  Workspace(const Problem& problem, const Config& config, std::byte* memory) {
    constexpr std::int64_t kFloat = sizeof(float);
    WorkspaceParts parts(memory);
    const std::int64_t keys = padded_slice_keys(problem);
    const std::int64_t slices = slices_of_launch(problem);
    const SequenceParts cut = parts_of(problem, config);
    places = parts.take<PartPlace>(cut.places_bytes());
    if (config.segments > 1 || (cut.tokens > 0 && !cut.are_whole)) {
      const std::int64_t segments =
          (cut.tokens > 0 ? cut.sums(problem.T) : problem.sequences() * config.segments) *
          problem.H * slices;
      const int width = values_per_block(config);
      states = parts.take<float4>(segments * value_tiles(problem, width) * width * keys * kFloat);
      decays = parts.take<float>(segments * (has_channel_gates(problem) ? keys : 1) * kFloat);
      if (has_value_gates(problem)) {
        value_decays = parts.take<float>(segments * padded_value_operands(problem) * kFloat);
      }
    }
    if (has_key_gates(problem)) {
      key_operands.take(parts, problem, problem.K, padded_key_operands(problem));
    }
    if (has_value_gates(problem)) {
      value_operands.take(parts, problem, problem.V, padded_value_operands(problem));
    }
    if (slices > 1) planes = parts.take<float>(slices * plane_elements(problem) * kFloat);
    bytes = parts.used();
  }

  PartPlace* places = nullptr;
  /// The segments', as the registers of their blocks hold them.
  float4* states = nullptr;
  float* decays = nullptr;
  float* value_decays = nullptr;
  OperandsMemory key_operands;
  OperandsMemory value_operands;
  float* planes = nullptr;  // what slices of key channels add to the outputs
  std::size_t bytes = 0;
};

inline SegmentWalkParams params_of(const Problem& problem, const Args& args, const Config& config,
                                   const Workspace& workspace) {
  SegmentWalkParams params =
      walk_params(problem, args, values_per_block(config), config.stages, config.segments);
  params.parts = parts_of(problem, config);
  params.parts.places = workspace.places;
  params.set_sums(config.segments);
  params.segment_states = workspace.states;
  params.segment_decays = workspace.decays;
  params.has_starts = has_starts(problem, params.parts, config);
  return params;
}

/// Of slices of `keys` padded key channels, with the decays of each key channel where there are gates
/// of channels.
inline SegmentSums sums_of(const SegmentWalkParams& params, const Config& config, int keys,
                           int slices, bool of_channels) {
  return {.states = params.segment_states,
          .decays = of_channels ? nullptr : params.segment_decays,
          .key_decays = of_channels ? params.segment_decays : nullptr,
          .owners = params.sequence_count * params.heads * slices,
          .places = params.segments,
          .count = params.segments - 1,
          .keys = keys,
          .values = params.value_tiles * values_per_block(config)};
}

/// What makes operands of one side's channels, without its tensors.
inline ChannelOperandsParams operands_params(const Problem& problem, const Args& args,
                                             const OperandsMemory& operands) {
  return {.sequences = pairs::chunked_sequences(problem, args),
          .sequence_count = problem.sequences(),
          .parts = OperandsMemory::chunk_count(problem),
          .heads = static_cast<int>(problem.H),
          .heads_per_kv = static_cast<int>(problem.H / problem.Hkv),
          .reverse = problem.reverse,
          .read_operands = operands.reads,
          .write_operands = operands.writes,
          .chunk_totals = operands.totals,
          .is_strong = operands.is_strong};
}

/// Rows of operands.
inline ConstTokenView operand_rows(const Problem& problem, const float* operands,
                                   std::int64_t channels) {
  const std::int64_t head = operand_channels(channels);
  const std::int64_t token = problem.H * head;
  return {operands, problem.T * token, token, head};
}

/// Makes operands of q and k.
inline void make_key_operands(const Problem& problem, const Args& args,
                              const OperandsMemory& operands, cudaStream_t stream) {
  ChannelOperandsParams params = operands_params(problem, args, operands);
  params.reads = token_view(args.q);
  params.writes = token_view(args.k);
  params.shared_gate = gate_view(args.g);
  params.gate = gate_view(args.gk);
  params.gamma = decay_view(args.gamma, problem.H);
  params.channels = static_cast<int>(problem.K);
  params.padded_channels = static_cast<int>(padded_key_operands(problem));
  launch_channel_operands(params, stream);
}
/// Makes operands of v, and the factors of outputs.
inline void make_value_operands(const Problem& problem, const Args& args,
                                const OperandsMemory& operands, cudaStream_t stream) {
  ChannelOperandsParams params = operands_params(problem, args, operands);
  params.writes = token_view(args.v);
  params.gate = gate_view(args.gv);
  if (!has_key_gates(problem)) {
    params.shared_gate = gate_view(args.g);
    params.gamma = decay_view(args.gamma, problem.H);
  }
  params.channels = static_cast<int>(problem.V);
  params.padded_channels = static_cast<int>(padded_value_operands(problem));
  launch_channel_operands(params, stream);
}

/// The walk takes operands in place of q, k and v, and leaves planes of outputs from `planes` on
/// where keys are cut.
inline SplitWalkParams split_params(const Problem& problem, const Args& args,
                                    const SegmentWalkParams& params, const Workspace& workspace,
                                    float* planes) {
  const OperandsMemory& keys = workspace.key_operands;
  const OperandsMemory& values = workspace.value_operands;
  SplitWalkParams split(params);
  split.slices = static_cast<int>(slices_of_launch(problem));
  if (planes != nullptr) {
    const std::int64_t head = plane_row(problem);
    const std::int64_t token = problem.H * head;
    split.o = {planes, problem.T * token, token, head};
    split.output_plane = plane_elements(problem);
  }
  split.gk = gate_view(args.gk);
  split.gv = gate_view(args.gv);
  if (has_key_gates(problem)) {
    split.q = operand_rows(problem, keys.reads, problem.K);
    split.k = operand_rows(problem, keys.writes, problem.K);
    split.heads_per_key = 1;
    split.keys = {keys.totals, keys.is_strong, static_cast<int>(padded_key_operands(problem))};
  }
  if (has_value_gates(problem)) {
    split.v = operand_rows(problem, values.writes, problem.V);
    split.heads_per_value = 1;
    split.output_factors = operand_rows(problem, values.reads, problem.V);
    split.values = {values.totals, values.is_strong,
                    static_cast<int>(padded_value_operands(problem))};
    split.segment_value_decays = workspace.value_decays;
  }
  return split;
}

inline void sum_planes(const Problem& problem, const Args& args, const Workspace& workspace,
                       cudaStream_t stream) {
  launch_plane_sums<float>({.planes = workspace.planes,
                            .plane_count = slices_of_launch(problem),
                            .batches = problem.B,
                            .tokens = problem.T,
                            .heads = problem.H,
                            .columns = problem.V,
                            .row = plane_row(problem),
                            .group = 1,
                            .out = token_view(args.o),
                            .sequences = sequences_view(args.cu_seqlens, problem.T),
                            .sequence_count = problem.sequences()},
                           stream);
}

/// Walks some of the key channels, all slices of them side by side; sequences are cut as all are.
inline void walk_split(const Problem& problem, const Args& args, const Config& config,
                       const SequenceParts& parts, const Workspace& workspace, float* planes,
                       cudaStream_t stream) {
  SegmentWalkParams params = params_of(problem, args, config, workspace);
  params.parts = parts;
  params.has_starts = has_starts(problem, parts, config);
  params.set_sums(config.segments);
  if (has_key_gates(problem)) make_key_operands(problem, args, workspace.key_operands, stream);
  const SplitWalkParams split = split_params(problem, args, params, workspace, planes);
  with_value<Gated::kNone, Gated::kKeys, Gated::kValues>(split.gated(), [&]<Gated kGated>() {
    if (params.is_cut()) launch_split_segment_states<float, kGated>(split, config, stream);
    if (params.has_starts) {
      SegmentSums sums =
          sums_of(params, config, padded_slice_keys(problem), split.slices, kGated != Gated::kNone);
      if (kGated == Gated::kValues) {
        sums.value_decays = split.segment_value_decays;
        sums.value_row = split.values.channels;
      }
      launch_segment_starts(sums, stream);
    }
    launch_split_walk<float, kGated>(split, config, stream);
  });
}

inline void run_split(const Problem& problem, const Args& args, const Config& config,
                      std::span<std::byte> memory, cudaStream_t stream) {
  const Workspace workspace(problem, config, memory.data());
  const SegmentWalkParams params = params_of(problem, args, config, workspace);
  launch_part_places(params, stream);
  if (has_value_gates(problem))
    make_value_operands(problem, args, workspace.value_operands, stream);
  const auto walk = [&](std::int64_t first, std::int64_t keys) {
    float* const planes = workspace.planes == nullptr
                              ? nullptr
                              : workspace.planes + first / kMaxSplitKeys * plane_elements(problem);
    walk_split(with_keys(problem, keys), key_slice(args, first, keys), config, params.parts,
               workspace, planes, stream);
  };
  const std::int64_t tail = narrow_tail(problem);
  walk(0, problem.K - tail);
  if (tail > 0) walk(problem.K - tail, tail);
  if (workspace.planes != nullptr) sum_planes(problem, args, workspace, stream);
}

/// Of 16 bits.
template <class T>
inline void run_slice(const Problem& problem, const Args& args, const Config& config,
                      std::span<std::byte> memory, cudaStream_t stream) {
  const Workspace workspace(problem, config, memory.data());
  const SegmentWalkParams params = params_of(problem, args, config, workspace);
  launch_part_places(params, stream);
  if (params.is_cut()) launch_segment_states<T>(params, config, stream);
  if (params.has_starts) {
    launch_segment_starts(sums_of(params, config, padded_slice_keys(problem), 1, false), stream);
  }
  launch_chunk_mma<T>(params, config, stream);
}

}  // namespace attune::cuda::chunk_mma
