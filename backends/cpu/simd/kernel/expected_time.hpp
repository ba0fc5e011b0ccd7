// How long kernels expect to take (Kernel::expected_us), from a few numbers each.
//
// A kernel's numbers are fitted to times of bench/kernel_choice: 225 forward and 144 backward
// problems of f32 and bf16, K and V from 16 to 256, T from 16 to 2048, on single cores of a
// Sapphire Rapids (AVX-512, about 3 GHz), least squares of the relative errors, of which 4 to 8 %
// were left; a kernel says so where a number is not. Since then loops have changed, and the default
// takes 0.1 to 1.2 % longer than the fastest kernel on average and 19 % at worst (docs/cpu.md).
// Narrower instruction sets slow the kernels that use them alike.
#pragma once

#include <cstdint>

#include <attune/ops/recurrent_attention_op.hpp>

namespace attune::cpu::simd {

/// In ns. Channels count as whole vectors.
struct TokenCosts {
  std::int64_t step =
      1;               // tokens advance by so many; the last ones take as long when they are fewer
  double token = 0;    // a token of a head
  double channel = 0;  // each of its K + V channels
  double product = 0;  // each of the K V elements of its state
  double g = 0;        // with a decay per head, constant or not
  double gk = 0;       // each key channel, with a decay of its own
  double gv = 0;       // each value channel, with a decay of its own
};

/// Equal tasks on `threads`, each of `heads` heads of a sequence and at most `columns` of V.
struct Division {
  std::int64_t tasks = 0;
  std::int64_t threads = 1;
  std::int64_t heads = 1;
  std::int64_t columns = 0;
};

/// A forward pass: a task for each head and tile of V.
Division by_head(const ops::RecurrentAttentionProblem& problem, std::int64_t tile_v,
                 std::int64_t threads);

/// A backward pass: `parts` tasks for each group of heads.
Division by_group(const ops::RecurrentAttentionProblem& problem, std::int64_t parts,
                  std::int64_t threads);

/// Of the thread that has the most to do.
double expected_us(const TokenCosts& costs, const ops::RecurrentAttentionProblem& problem,
                   const Division& division);

}  // namespace attune::cpu::simd
