// The chunked forward kernel without its outputs: what is written to the state alone, compiled once
// per instruction set.
//
// With a_t[i] the decay of channel i at token t and tokens 0 .. n-1 in the chunk, a token is
// written as
//
//   k_s a_{s+1} .. a_{n-1}        or, inclusive,        k_s a_s .. a_{n-1}
//
// and values with decays of their own likewise. Gates are summed up in fp32 within a chunk, and
// those sums in double.
#pragma once

#include "cpu/simd/chunk/chunk.inl.hpp"
#include "summary_params.hpp"

namespace attune::cpu::simd::ATTUNE_SIMD_NAMESPACE::chunk::summary {

using simd::chunk::summary::Instance;
using simd::chunk::summary::Params;
using simd::chunk::summary::SumScratch;
using simd::chunk::summary::SumTensor;

// Log decays of a task's tokens so far.
struct LogSums {
  double shared = 0;            // of g and gamma
  double* keys = nullptr;       // [K in whole panels], of gk
  double* values = nullptr;     // [tile], of gv
  float* key_rows = nullptr;    // [2, K in whole panels], of one chunk, as the next
  float* value_rows = nullptr;  // [2, tile]
};

// One side's rows, decayed to the end of the chunk.
struct DecayedRows {
  const ChunkRows& rows;
  const ChunkRows& gates;  // of each channel
  const TokenLogs& logs;   // of all channels
  std::int64_t chunk = 0;
  std::int64_t width = 0;   // channels that exist
  std::int64_t padded = 0;  // what all rows below have
  float scale = 1.0F;
  bool inclusive = false;
  float* decays = nullptr;  // over all of the chunk
  float* carries = nullptr;
  float* to_end = nullptr;  // decays behind a token, and then the sums of the gates
  double* sums = nullptr;   // of the gates, of all chunks
};

// Tokens are taken a few at a time, so that their rows are read as they lie. target(t, i): where
// channel i of token t goes.
template <class Target>
[[gnu::always_inline]] inline void decay_to_end(const DecayedRows& p, const Target& target) {
  float* const gate_sums = p.to_end + p.padded;
  for (std::int64_t i = 0; i < p.padded; i += kLanes) {
    store(p.to_end + i, broadcast(p.scale));
    store(p.decays + i, F32{});
    store(gate_sums + i, F32{});
  }
  for (std::int64_t token = p.chunk; token > 0;) {
    token -= kBlockTokens;
    for (std::int64_t i = 0; i < p.width; i += kLanes) {
      F32 decay[kBlockTokens];
      F32 log_sum = load(p.decays + i);
      F32 gate_sum = load(gate_sums + i);
#pragma GCC unroll 4
      for (int t = 0; t < kBlockTokens; ++t) {
        const F32 gate = load(p.gates.row[token + t] + i);
        decay[t] = gate + p.logs.log[token + t];
        gate_sum += gate;
        log_sum += decay[t];
      }
      store(p.decays + i, log_sum);
      store(gate_sums + i, gate_sum);
      exp_each(decay);
      F32 to_end = load(p.to_end + i);
#pragma GCC unroll 4
      for (int t = kBlockTokens - 1; t >= 0; --t) {
        const F32 through = to_end * decay[t];
        store(target(token + t, i),
              load(p.rows.row[token + t] + i) * (p.inclusive ? through : to_end));
        to_end = through;
      }
      store(p.to_end + i, to_end);
    }
  }
  exp_with_carry(p.decays, p.carries, p.padded);
  for (std::int64_t i = 0; i < p.width; ++i) p.sums[i] += static_cast<double>(gate_sums[i]);
}

[[gnu::noinline]] inline void decay_keys(const DecayedRows& rows, const Panels& to) {
  decay_to_end(rows, [&](std::int64_t t, std::int64_t i) { return to.at(t, i); });
}

[[gnu::noinline]] inline void decay_rows(const DecayedRows& rows, float* to, std::int64_t step) {
  decay_to_end(rows, [&](std::int64_t t, std::int64_t j) { return to + t * step + j; });
}

// keys.writes and keys.decays of tokens [token, token + present).
inline void prepare_writes(const ChunkKeys& keys, bool inclusive, std::int64_t token,
                           std::int64_t present, LogSums& sums) {
  ChunkRows k;
  chunk_rows(keys.k, token, present, keys.chunk, k);
  if (!keys.has_decay) return pack_panels(k, keys.chunk, keys.channels, keys.scale, keys.writes);
  TokenLogs logs;
  token_logs(keys.g, keys.gamma, token, present, keys.chunk, logs);
  sums.shared += sum_of(logs.log, present);
  balance_logs(keys.balance, token, present, logs);
  if (keys.gk.rows.data) {
    ChunkRows gk;
    chunk_rows(keys.gk, token, present, keys.chunk, gk);
    if (keys.balance.gv.data) keep_padding(keys.gk, logs.log, present);
    return decay_keys({.rows = k,
                       .gates = gk,
                       .logs = logs,
                       .chunk = keys.chunk,
                       .width = keys.channels,
                       .padded = keys.padded,
                       .scale = keys.scale,
                       .inclusive = inclusive,
                       .decays = keys.decays,
                       .carries = keys.carries,
                       .to_end = sums.key_rows,
                       .sums = sums.keys},
                      keys.writes);
  }
  alignas(64) float of_token[kMaxChunk];
  token_decays(keys, logs, of_token);
  for (std::int64_t t = 0; t < keys.chunk; ++t) {
    keys.to_end[t] *= inclusive ? keys.scale * of_token[t] : keys.scale;
  }
  pack_decayed_panels(k, keys.to_end, keys.chunk, keys.channels, keys.relative, keys.writes);
}

// values.rows, and values.decays where there are any.
inline void prepare_values(const ChunkValues& values, bool inclusive, std::int64_t token,
                           std::int64_t present, const LogSums& sums) {
  ChunkRows v;
  chunk_rows(values.v, token, present, values.chunk, v);
  if (!values.gv.rows.data) return pack_matrix(v, values.chunk, values.padded, values.rows);
  ChunkRows gv;
  chunk_rows(values.gv, token, present, values.chunk, gv);
  TokenLogs logs;
  token_logs({}, 0.0F, token, present, values.chunk, logs);
  balance_logs(values.balance, token, present, logs);
  if (values.balance.gv.data) keep_padding(values.gv, logs.log, present);
  decay_rows({.rows = v,
              .gates = gv,
              .logs = logs,
              .chunk = values.chunk,
              .width = values.padded,
              .padded = values.padded,
              .inclusive = inclusive,
              .decays = values.decays,
              .carries = values.carries,
              .to_end = sums.value_rows,
              .sums = sums.values},
             values.rows, values.padded);
}

inline void summarise_chunk(const ChunkTask& task, bool inclusive, std::int64_t token,
                            std::int64_t present, LogSums& sums) {
  const ChunkKeys& keys = task.keys;
  const ChunkValues& values = task.values;
  prepare_writes(keys, inclusive, token, present, sums);
  prepare_values(values, inclusive, token, present, sums);
  ChannelsProduct update{.panels = keys.writes,
                         .channels = keys.padded,
                         .depth = keys.chunk,
                         .matrix = values.rows,
                         .matrix_step = values.padded,
                         .target = task.state,
                         .target_step = values.padded,
                         .columns = values.padded,
                         .row_scale = keys.decays,
                         .column_scale = values.decays};
  LineFetcher fetcher;
  const bool fetches = task.fetch_list && token + 2 * keys.chunk <= task.tokens;
  if (fetches) {
    fetcher = task.fetch_list->fetcher(update.fetch_steps());
    update.fetcher = &fetcher;
  }
  const bool column_decay = values.gv.rows.data != nullptr;
  if (keys.has_decay && column_decay) {
    multiply_channels<Start::kScaleBoth>(update);
  } else if (keys.has_decay) {
    multiply_channels<Start::kScaleRows>(update);
  } else if (column_decay) {
    multiply_channels<Start::kScaleColumns>(update);
  } else {
    multiply_channels<Start::kAdd>(update);
  }
  if (fetches) task.fetch_list->next_chunk();
}

inline void run_task(const Tiling& tiling, ChunkTask task, bool inclusive, LogSums& sums,
                     const char** lines) {
  const ChunkKeys& keys = task.keys;
  FetchList list(lines, 0, 0);
  if (tiling.prefetch && task.tokens > tiling.chunk) {
    list = fetch_list(task.keys, task.values, task.stream, tiling.chunk, lines);
    task.fetch_list = &list;
  }
  read_state(task);
  // What is behind K in the panels stays zero.
  for (std::int64_t i = 0; i < keys.padded * keys.chunk; i += kLanes) {
    store(keys.writes.data + i, F32{});
  }
  for (std::int64_t i = 0; i < keys.padded; i += kLanes) store(keys.carries + i, F32{});
  for (std::int64_t j = 0; j < task.values.padded; j += kLanes) {
    store(task.values.carries + j, F32{});
  }
  for (std::int64_t i = 0; i < keys.padded; ++i) sums.keys[i] = 0;
  for (std::int64_t j = 0; j < task.values.padded; ++j) sums.values[j] = 0;
  for (std::int64_t token = 0; token < task.tokens; token += keys.chunk) {
    const std::int64_t left = task.tokens - token;
    summarise_chunk(task, inclusive, token, left < keys.chunk ? left : keys.chunk, sums);
  }
  write_state(task);
}

inline void write_sums(const double* sums, double shared, std::int64_t count,
                       const TaskRange& range, std::int64_t first, const SumTensor& to) {
  float* const row = to.data + range.sequence * to.sequence_stride + range.head * to.head_stride;
  for (std::int64_t i = 0; i < count; ++i) {
    row[(first + i) * to.channel_stride] = static_cast<float>(sums[i] + shared);
  }
}

inline void run_tasks(const Tiling& tiling, const SumScratch& at_sums, const Params& params,
                      std::int64_t first_task, std::int64_t last_task, float* scratch) {
  const Scratch& at = tiling.scratch;
  for (std::int64_t i = at.zeros; i < at.size; i += kLanes) store(scratch + i, F32{});
  const char* lines[FetchList::kMaxLines];
  LogSums sums{.keys = reinterpret_cast<double*>(scratch + at_sums.keys),
               .values = reinterpret_cast<double*>(scratch + at_sums.values),
               .key_rows = scratch + at_sums.key_rows,
               .value_rows = scratch + at_sums.value_rows};
  for (std::int64_t index = first_task; index < last_task; ++index) {
    const TaskRange sequence = task_range(tiling, params, index);
    sums.shared = 0;
    for_each_segment(params, sequence, {},
                     [&](const TaskRange& range, const SegmentStates& states) {
                       run_task(tiling, chunk_task(tiling, params, range, states, scratch),
                                params.inclusive, sums, lines);
                     });
    if (sequence.column == 0) {
      write_sums(sums.keys, sums.shared, params.key_dim, sequence, 0, params.gk_sum);
    }
    if (params.gv_sum.data) {
      write_sums(sums.values, 0, columns_of(tiling, params, sequence), sequence, sequence.column,
                 params.gv_sum);
    }
  }
}

inline Instance instance() { return {.run = run_tasks}; }

}  // namespace attune::cpu::simd::ATTUNE_SIMD_NAMESPACE::chunk::summary
