// What the CPU's results are held against: recurrent attention as one would first write it in C++,
// and loops that do nothing but multiply and add, or move memory.
//
// Each is plain C++ that the compiler vectorises, compiled at -O3 once for every instruction set,
// as attune's own kernels are: a speed-up over it is not a speed-up over scalar code.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace attune::yardsticks {

/// All tensors are dense fp32: q, k [T, H, K], v, o [T, H, V], decay [T, H, K], states [H, K, V].
struct NaiveRecurrentArgs {
  const float* q = nullptr;
  const float* k = nullptr;
  const float* v = nullptr;
  const float* decay = nullptr;          // exp of the gate; null for none
  const float* initial_state = nullptr;  // null: what is in `state`
  float* o = nullptr;
  float* state = nullptr;      // the state after the last token
  std::int64_t tokens = 0;     // T
  std::int64_t heads = 0;      // H
  std::int64_t key_dim = 0;    // K
  std::int64_t value_dim = 0;  // V
  float scale = 1.0F;
};

/// The loops, compiled for one instruction set.
struct Loops {
  std::string_view isa;  // "avx512", "avx2", "baseline"

  /// Per head, three nested loops over t, i and j. Runs heads [first_head, last_head).
  void (*naive_recurrent)(const NaiveRecurrentArgs& args, std::int64_t first_head,
                          std::int64_t last_head);

  /// Independent chains of x = a x + b, enough to hide their latency. `flops_per_step` each.
  float (*multiply_add)(std::int64_t steps);
  std::int64_t flops_per_step;

  /// x[i] = a x[i]: reads and writes 4 bytes an element.
  void (*update)(float* values, std::int64_t count);

  /// As much for a target of its own, aligned as `from` to 64 bytes; through the caches, and past
  /// them (null where there is no such store).
  void (*copy)(const float* from, float* to, std::int64_t count);
  void (*copy_past_caches)(const float* from, float* to, std::int64_t count);
};

/// For every instruction set that this program carries and this CPU has, the widest first.
std::span<const Loops> loops_of_this_cpu();

/// Products of bf16 tiles in registers of their own, summed in fp32.
struct TileProducts {
  std::string_view isa;  // "amx_bf16"

  /// Independent sums of products of the same two tiles, enough to hide their latency. The process
  /// has asked the system for the registers, as what describes a host does (feature amx_bf16).
  float (*multiply_add)(std::int64_t steps);
  std::int64_t flops_per_step;
};

/// Nothing where the program does not carry them. Whether the CPU has them is the caller's to ask.
std::optional<TileProducts> tile_products();

}  // namespace attune::yardsticks
