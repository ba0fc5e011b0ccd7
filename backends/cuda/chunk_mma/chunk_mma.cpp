#include "cuda/chunk_mma/chunk_mma.hpp"

#include <algorithm>
#include <limits>

#include "cuda/chunk_mma/channel_operands.hpp"
#include "cuda/chunks/key_slices.hpp"
#include "cuda/chunks/plane_sums.hpp"
#include "cuda/chunks/segment_counts.hpp"
#include "cuda/chunks/short_walk.hpp"
#include "cuda/chunks/with_padded_rows.hpp"
#include "cuda/chunks/with_stored_states.hpp"
#include "cuda/kernels.hpp"
#include "cuda/runtime/dispatch.hpp"
#include "cuda/runtime/handles.hpp"
#include "cuda/runtime/workspace_parts.hpp"
#include "cuda/walks/walk.hpp"

namespace attune::cuda::chunk_mma {
namespace {

using Config = ChunkMmaConfig;
using Problem = ops::RecurrentAttentionProblem;
using Args = ops::RecurrentAttentionArgs;

// In f32; fewer are faster one by one, or with gates of channels in chunks of 16.
constexpr std::int64_t kMinSplitTokens = 8;
constexpr std::int64_t kMinGatedTokens = 24;

bool is_split(const Problem& problem) { return problem.dtype == DType::kF32; }
bool has_key_gates(const Problem& problem) { return (problem.gates & ops::kGateGk) != 0; }
bool has_value_gates(const Problem& problem) { return (problem.gates & ops::kGateGv) != 0; }
bool has_channel_gates(const Problem& problem) {
  return has_key_gates(problem) || has_value_gates(problem);
}
Gated gated_channels(const Problem& problem) {
  return has_value_gates(problem) ? Gated::kValues
         : has_key_gates(problem) ? Gated::kKeys
                                  : Gated::kNone;
}

/// Key channels of a block: more go slice by slice, in 16 bits by as many launches
/// (key_slices.hpp), in f32 side by side.
std::int64_t most_keys(const Problem& problem) {
  return is_split(problem) ? kMaxSplitKeys : kMostKeys;
}
int padded_slice_keys(const Problem& problem) {
  return padded_keys(std::min(problem.K, most_keys(problem)));
}
std::int64_t slices_of_launch(const Problem& problem) {
  return is_split(problem) ? ceil_div(problem.K, kMaxSplitKeys) : 1;
}
/// Channels that there are decays of.
std::int64_t padded_key_operands(const Problem& problem) {
  return slices_of_launch(problem) * padded_slice_keys(problem);
}
std::int64_t padded_value_operands(const Problem& problem) {
  return operand_groups(problem.V) * kOperandChannels;
}

/// Blocks that walk a head.
std::int64_t head_tiles(const Problem& problem, const Config& config) {
  return value_tiles(problem, values_per_block(config)) * slices_of_launch(problem);
}
/// Blocks of the kernel that makes the outputs.
std::int64_t block_count(const Problem& problem, const Config& config) {
  return problem.sequences() * problem.H * head_tiles(problem, config) * config.segments;
}

/// Segments of fewer chunks do not pay for their states.
std::int64_t least_tokens(const Config& config) {
  constexpr std::int64_t kMinChunks = 4;
  return kMinChunks * config.chunk;
}
SequenceParts parts_of(const Problem& problem, const Config& config) {
  return parts_by_length(problem, head_tiles(problem, config), config.segments,
                         least_tokens(config));
}

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

std::int64_t plane_elements(const Problem& problem) {
  return problem.B * problem.T * problem.H * problem.V;
}

/// What a launch has in the workspace.
struct Workspace {
  Workspace(const Problem& problem, const Config& config, std::byte* memory) {
    constexpr std::int64_t kFloat = sizeof(float);
    WorkspaceParts parts(memory);
    const std::int64_t keys = padded_slice_keys(problem);
    const std::int64_t slices = slices_of_launch(problem);
    const SequenceParts cut = parts_of(problem, config);
    if (config.segments > 1 || cut.tokens > 0) {
      const std::int64_t segments =
          (cut.tokens > 0 ? cut.sums(problem.T) : problem.sequences() * config.segments) *
          problem.H * slices;
      const int width = values_per_block(config);
      places = parts.take<PartPlace>(cut.places_bytes());
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

std::size_t shared_bytes(const Problem& problem, const Config& config) {
  const int keys = padded_slice_keys(problem);
  return is_split(problem) ? split_shared_bytes(keys, gated_channels(problem), config)
                           : shared_bytes(keys, config);
}

/// Blocks that a device has room for at once.
std::int64_t room_for(const Problem& problem, const DeviceInfo& device, const Config& config) {
  const int by_registers = is_split(problem) ? split_resident_blocks(config)
                                             : resident_blocks(padded_slice_keys(problem), config);
  return room_for_blocks(device, static_cast<std::int64_t>(shared_bytes(problem, config)),
                         by_registers);
}

int segments_for(const Problem& problem, const DeviceInfo& device, Config config) {
  config.segments = 1;
  return cheapest_segments({.blocks = block_count(problem, config),
                            .room = room_for(problem, device, config),
                            .chunks = mean_chunks(problem, config.chunk)},
                           device);
}

/// Microseconds of a problem in f32, fitted to an H200; what gates of value channels take besides,
/// to an H100.
double split_us(const Problem& problem, const DeviceInfo& device, const Config& config) {
  constexpr double kOfLaunch = 3.2;
  constexpr double kOfBothWalks = 1.33;  // the first one reads nothing
  constexpr double kOfTwoBlocks = 1.27;  // where they share a multiprocessor
  constexpr double kOfOperand = 8e-6;    // a channel of q and k made and read again
  constexpr double kOfSummand = 3e-6;    // an output of a slice, read again
  constexpr double kOfValueGates = 1.23;
  const int keys = padded_slice_keys(problem);
  double chunk_us = keys > 64 ? 4.5 : config.warps > 4 ? 3.3 : 2.7;
  if (has_channel_gates(problem)) chunk_us *= 1 + keys / 600.0;
  if (has_value_gates(problem)) chunk_us *= kOfValueGates;
  const std::int64_t room = room_for(problem, device, config);
  const std::int64_t blocks = block_count(problem, config);
  if (room > device.cores && blocks > device.cores) chunk_us *= kOfTwoBlocks;
  const std::int64_t tokens = problem.T / std::max<std::int64_t>(problem.N, 1);
  const std::int64_t chunks = ceil_div(ceil_div(tokens, kSplitChunk), config.segments);
  double us = static_cast<double>(chunks * ceil_div(blocks, room)) * chunk_us + kOfLaunch;
  if (config.segments > 1) us = us * kOfBothWalks + kOfLaunch;
  const auto operands_us = [&](std::int64_t channels) {
    return kOfLaunch +
           kOfOperand * static_cast<double>(problem.B * problem.T * problem.H * channels);
  };
  if (has_key_gates(problem)) us += operands_us(problem.K);
  if (has_value_gates(problem)) us += operands_us(problem.V);
  const std::int64_t slices = slices_of_launch(problem);
  if (slices == 1) return us;
  return us + kOfLaunch + kOfSummand * static_cast<double>(slices * plane_elements(problem));
}

/// Whether sequences in 16 bits are so short that a block's beginning and end are what takes time:
/// blocks of cuda.chunk_wgmma are too few then, and of wide heads too wide. On a pool of states the
/// average has to be shorter, as one may be long and is not cut.
bool is_short(const Problem& problem) {
  constexpr std::int64_t kTokens = 64, kTokensOfWideHeads = 256, kPooled = 32,
                         kPooledOfWideHeads = 128;
  const bool wide = problem.K > 128;
  const std::int64_t most =
      problem.pool ? (wide ? kPooledOfWideHeads : kPooled) : (wide ? kTokensOfWideHeads : kTokens);
  return problem.T <= most * std::max<std::int64_t>(problem.N, 1);
}

/// Microseconds of such a problem: of its blocks, or of its rows and states through memory, fitted
/// to 122 problems on an H100.
double short_us(const Problem& problem, const DeviceInfo& device, const Config& config) {
  constexpr double kOfBlock = 1.8;
  constexpr double kOfChunk = 0.5, kOfChunkOfKey = 0.01;
  constexpr double kShared = 0.2;  // more of that for each further block of a multiprocessor
  constexpr double kBytesPerUs = 1.5e6;
  const std::int64_t blocks = block_count(problem, config);
  const std::int64_t room = room_for(problem, device, config);
  const std::int64_t together = ceil_div(std::min(blocks, room), device.cores);
  const ShortWalk walk{.block = kOfBlock,
                       .chunk = kOfChunk + kOfChunkOfKey * padded_slice_keys(problem),
                       .chunk_tokens = static_cast<double>(config.chunk),
                       .rounds = static_cast<double>(ceil_div(blocks, room)) *
                                 (1 + kShared * static_cast<double>(together - 1)),
                       .key_slices = static_cast<double>(ceil_div(problem.K, most_keys(problem)))};
  const std::int64_t rows = problem.B * problem.T * (problem.H + problem.Hkv);
  const std::int64_t states = problem.sequences() * problem.H * (problem.h0 + problem.ht);
  const auto bytes =
      static_cast<double>(2 * rows * (problem.K + problem.V) + 4 * states * problem.K * problem.V);
  return std::max(short_walk_us(walk, LikelyLengths(problem)), bytes / kBytesPerUs);
}

SegmentWalkParams params_of(const Problem& problem, const Args& args, const Config& config,
                            const Workspace& workspace) {
  SegmentWalkParams params =
      walk_params(problem, args, values_per_block(config), config.stages, config.segments);
  params.parts = parts_of(problem, config);
  params.parts.places = workspace.places;
  params.set_sums(config.segments);
  params.segment_states = workspace.states;
  params.segment_decays = workspace.decays;
  return params;
}

/// What makes operands of one side's channels, without its tensors.
ChannelOperandsParams operands_params(const Problem& problem, const Args& args,
                                      const OperandsMemory& made) {
  return {.sequences = walked_sequences(args, problem.T),
          .sequence_count = problem.sequences(),
          .parts = OperandsMemory::chunk_count(problem),
          .heads = static_cast<int>(problem.H),
          .heads_per_kv = static_cast<int>(problem.H / problem.Hkv),
          .reverse = problem.reverse,
          .made_reads = made.reads,
          .made_writes = made.writes,
          .chunk_totals = made.totals,
          .is_strong = made.is_strong};
}

/// Rows of what was made.
ConstTokenView operand_rows(const Problem& problem, const float* made, std::int64_t channels) {
  const std::int64_t head = operand_channels(channels);
  const std::int64_t token = problem.H * head;
  return {made, problem.T * token, token, head};
}

/// Makes operands of q and k.
void make_key_operands(const Problem& problem, const Args& args, const OperandsMemory& made,
                       cudaStream_t stream) {
  ChannelOperandsParams params = operands_params(problem, args, made);
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
void make_value_operands(const Problem& problem, const Args& args, const OperandsMemory& made,
                         cudaStream_t stream) {
  ChannelOperandsParams params = operands_params(problem, args, made);
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

/// The walk takes operands in place of q, k and v, and leaves planes of outputs where keys are cut.
SplitWalkParams split_params(const Problem& problem, const Args& args,
                             const SegmentWalkParams& params, const Workspace& workspace) {
  const OperandsMemory& keys = workspace.key_operands;
  const OperandsMemory& values = workspace.value_operands;
  SplitWalkParams split(params);
  split.slices = static_cast<int>(slices_of_launch(problem));
  if (split.slices > 1) {
    const std::int64_t token = problem.H * problem.V;
    split.o = {workspace.planes, problem.T * token, token, problem.V};
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

void sum_planes(const Problem& problem, const Args& args, const Workspace& workspace,
                cudaStream_t stream) {
  launch_plane_sums<float>({.planes = workspace.planes,
                            .plane_count = slices_of_launch(problem),
                            .batches = problem.B,
                            .tokens = problem.T,
                            .heads = problem.H,
                            .columns = problem.V,
                            .group = 1,
                            .out = token_view(args.o),
                            .sequences = sequences_view(args.cu_seqlens, problem.T),
                            .sequence_count = problem.sequences()},
                           stream);
}

void run_split(const Problem& problem, const Args& args, const Config& config,
               std::span<std::byte> memory, cudaStream_t stream) {
  const Workspace workspace(problem, config, memory.data());
  const SegmentWalkParams params = params_of(problem, args, config, workspace);
  launch_part_places(params, stream);
  if (has_key_gates(problem)) make_key_operands(problem, args, workspace.key_operands, stream);
  if (has_value_gates(problem))
    make_value_operands(problem, args, workspace.value_operands, stream);
  const SplitWalkParams split = split_params(problem, args, params, workspace);
  with_value<Gated::kNone, Gated::kKeys, Gated::kValues>(split.gated(), [&]<Gated kGated>() {
    if (params.is_cut()) launch_split_segment_states<float, kGated>(split, config, stream);
    launch_split_walk<float, kGated>(split, config, stream);
  });
  if (split.slices > 1) sum_planes(problem, args, workspace, stream);
}

/// Of 16 bits.
template <class T>
void run_slice(const Problem& problem, const Args& args, const Config& config,
               std::span<std::byte> memory, cudaStream_t stream) {
  const Workspace workspace(problem, config, memory.data());
  const SegmentWalkParams params = params_of(problem, args, config, workspace);
  launch_part_places(params, stream);
  if (params.is_cut()) launch_segment_states<T>(params, config, stream);
  launch_chunk_mma<T>(params, config, stream);
}

class ChunkMma : public Kernel<ChunkMmaConfig> {
 public:
  using Config = ChunkMmaConfig;

  /// What it takes without copies (with_padded_rows.hpp).
  static bool takes_rows(const Problem& problem) {
    const int copied = is_split(problem) ? kChannelsPerSplitCopy : kChannelsPerCopy;
    return problem.aligned && problem.K % copied == 0 && problem.V % copied == 0;
  }
  static bool takes_rows(const Problem&, const Args&) { return false; }

  std::string_view name() const noexcept override { return "cuda.chunk_mma"; }
  int version() const noexcept override { return 1; }

  std::vector<std::string_view> features() const override {
    return {"g", "gamma", "gk", "gv", "packed", "h0", "ht", "reverse"};
  }
  Support supports(const Problem& problem, const DeviceInfo& device) const override {
    if (device.id.backend != "gpu" || !device.has("sm_80"))
      return Support::no(refused::kDevice, "needs sm_80");
    if (has_channel_gates(problem) && !is_split(problem)) {
      return Support::no(refused::kDType, "takes gk and gv in f32 alone");
    }
    if (problem.K > kMostSlicedKeys) {
      return Support::no(refused::kShape, str("takes K <= ", kMostSlicedKeys));
    }
    const std::int64_t fewest = has_channel_gates(problem) ? kMinGatedTokens : kMinSplitTokens;
    if (is_split(problem) && problem.T < fewest * std::max<std::int64_t>(problem.N, 1)) {
      return Support::no(refused::kShape,
                         str("takes sequences of ", fewest, " tokens or more in f32"));
    }
    if (problem.T > kMostTokens)
      return Support::no(refused::kShape, str("takes T <= ", kMostTokens));
    if (!takes_rows(problem)) {
      return Support::no(refused::kAlignment,
                         "takes rows that start at multiples of 16 bytes and have whole ones");
    }
    if (problem.H > std::numeric_limits<int>::max() ||
        block_count(problem, {.warps = 4}) > std::numeric_limits<int>::max()) {
      return Support::no(refused::kShape, "has more heads than a launch has blocks");
    }
    return Support::yes();
  }

  Support fits(const Problem& problem, const DeviceInfo& device,
               const Config& config) const override {
    const int keys = padded_slice_keys(problem);
    if (is_split(problem) && !is_compiled_split(keys, config)) {
      return Support::no(refused::kInstance, "f32 takes chunk=32");
    }
    if (!is_compiled(keys, config))
      return Support::no(refused::kInstance, "K > 128 takes chunk=32");
    const auto bytes = static_cast<std::int64_t>(shared_bytes(problem, config));
    if (bytes > device.l1_bytes) {
      return Support::no(
          refused::kMemory,
          str("needs ", bytes, " bytes of shared memory a block, of which there are ",
              device.l1_bytes));
    }
    if (block_count(problem, config) > std::numeric_limits<int>::max()) {
      return Support::no(refused::kShape, "needs more blocks than a launch may have");
    }
    return Support::yes();
  }

  /// Wide blocks read q and k the fewest times. Where there is one for every multiprocessor, short
  /// chunks do less; where sequences have to be cut for that, long ones keep their segments long.
  Config heuristic_config(const Problem& problem, const DeviceInfo& device) const override {
    Config config{.warps = problem.V > 64 ? 8 : 4, .chunk = 32};
    if (!fits(problem, device, config)) config.stages = 2;
    if (!fits(problem, device, config)) config.warps = 4;
    config.segments = segments_for(problem, device, config);
    Config longer = config;
    longer.chunk = 64;
    longer.segments = segments_for(problem, device, longer);
    const bool is_better = config.warps == 8 && padded_slice_keys(problem) == 128;
    return is_better && longer.segments > 1 && fits(problem, device, longer) ? longer : config;
  }

  /// In 16 bits it comes after cuda.chunk_wgmma, but for short sequences and several packed ones,
  /// which it cuts by their own lengths.
  std::optional<double> expected_us(const Problem& problem,
                                    const DeviceInfo& device) const override {
    if (is_split(problem)) return split_us(problem, device, heuristic_config(problem, device));
    const Config config = heuristic_config(problem, device);
    if (is_short(problem)) return short_us(problem, device, config);
    constexpr std::int64_t kSeveral = 8;
    const bool is_cut = problem.N >= kSeveral && parts_of(problem, config).tokens > 0;
    return is_cut ? std::optional(short_us(problem, device, config)) : std::nullopt;
  }

  /// Shapes of a block that measured best somewhere, each with about as many segments as there is
  /// room for.
  std::vector<Config> candidate_configs(const Problem& problem,
                                        const DeviceInfo& device) const override {
    constexpr Config kNarrow[] = {{.warps = 4, .chunk = 32, .stages = 3},
                                  {.warps = 4, .chunk = 32, .stages = 2},
                                  {.warps = 4, .chunk = 64, .stages = 2}};
    constexpr Config kWide[] = {{.warps = 8, .chunk = 64, .stages = 3},
                                {.warps = 8, .chunk = 64, .stages = 2},
                                {.warps = 8, .chunk = 32, .stages = 3}};
    std::vector<Config> configs;
    const auto add = [&](Config config) {
      if (!fits(problem, device, config)) return;
      const int expected = segments_for(problem, device, config);
      for (const int segments : kSegments) {
        config.segments = segments;
        if (is_near(segments, expected) && fits(problem, device, config)) configs.push_back(config);
      }
    };
    std::ranges::for_each(kNarrow, add);
    if (problem.V > 64) std::ranges::for_each(kWide, add);
    return configs;
  }

  std::size_t workspace_bytes(const Problem& problem, const Config& config) const override {
    const std::size_t added = is_split(problem) ? 0 : key_slices_bytes(problem, kMostKeys);
    return added + Workspace(problem, config, nullptr).bytes;
  }

  void run(const Problem& problem, const Args& args, const Config& config,
           const LaunchSite& site) const override {
    const DeviceGuard guard(args.q.device.index);
    const auto stream = static_cast<cudaStream_t>(site.stream);
    if (is_split(problem)) return run_split(problem, args, config, site.workspace, stream);
    run_key_slices(problem, args, kMostKeys, site.workspace, stream,
                   [&](const Problem& slice, const Args& own, std::span<std::byte> memory) {
                     with_element<__half, __nv_bfloat16>(slice.dtype, [&]<class T>() {
                       run_slice<T>(slice, own, config, memory, stream);
                     });
                   });
  }
};

}  // namespace
}  // namespace attune::cuda::chunk_mma

std::unique_ptr<const attune::ErasedKernel> attune::cuda::make_chunk_mma() {
  return std::make_unique<WithStoredStates<WithPaddedRows<chunk_mma::ChunkMma>>>();
}
