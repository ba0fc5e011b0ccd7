#include "suites.hpp"

#include <string>

#include <attune/core/error.hpp>
#include <attune/core/params.hpp>

#include "exit_code.hpp"
#include "text.hpp"

namespace attune::cli {
namespace {

using Ops = std::vector<std::string_view>;

/// What flash-linear-attention 0.5.2, vLLM's lightning attention and ejkernel were measured on.
/// `must` is ahead of all of them, `goal` near what the memory allows.
Suite h200() {
  const Ops forward{"recurrent_attention"};
  const Ops both_passes{"recurrent_attention", "recurrent_attention.backward"};
  const Ops decode{"recurrent_decode"};
  return {
      .name = "h200",
      .backend = "gpu",
      .copy_bytes_per_us = 4.25e6,
      .rows = {
          {forward, "B=8 T=2048 H=16 D=128 dtype=bf16 gate=gamma ht=yes", 82, 70},
          {forward, "B=32 T=512 H=16 D=128 dtype=bf16 gate=gamma ht=yes", 84, 72},
          {forward, "B=1 T=8192 H=32 D=128 dtype=bf16 gate=gamma ht=yes", 125, 98},
          {forward, "B=4 T=4096 H=16 D=64 dtype=bf16 gate=gamma ht=yes", 55, 42},
          {forward, "B=4 T=4096 H=8 D=256 dtype=bf16 gate=gamma ht=yes", 130, 90},
          {forward, "B=1 T=65536 H=32 D=128 dtype=bf16 gate=gamma ht=yes", 950, 790},
          {forward, "B=8 T=2048 H=16 D=128 dtype=bf16 gate=g ht=yes", 90, 75},
          {forward, "B=8 T=2048 H=16 D=128 dtype=bf16 gate=gk gate_dtype=io ht=yes", 170, 110},
          {forward, "B=1 T=8192 H=32 D=128 dtype=bf16 gate=gk gate_dtype=io ht=yes", 260, 150},
          {forward, "B=4 T=4096 H=16 D=64 dtype=bf16 gate=gk gate_dtype=io ht=yes", 100, 60},
          {forward, "B=1 T=65536 H=32 D=128 dtype=bf16 gate=gk gate_dtype=io ht=yes", 2000, 1200},
          {forward, "B=4 T=4096 H=8 D=256 dtype=bf16 gate=gk gate_dtype=io ht=yes", 300, 150},
          {both_passes, "B=8 T=2048 H=16 D=128 dtype=bf16 gate=gamma", 330, 260},
          {both_passes, "B=1 T=8192 H=32 D=128 dtype=bf16 gate=gamma", 450, 345},
          {both_passes, "B=8 T=2048 H=16 D=128 dtype=bf16 gate=gk gate_dtype=io", 1000, 550},
          // 1.15 times what a constant decay must take: its gate is 4 bytes a token and head.
          {both_passes, "B=8 T=2048 H=16 D=128 dtype=bf16 gate=g", 380, 0},
          {decode, "B=1 H=32 D=128 dtype=bf16 gate=gamma", 5, 4},
          {decode, "B=32 H=32 D=128 dtype=bf16 gate=gamma", 38, 35},
          {decode, "B=64 H=64 D=128 dtype=bf16 gate=gamma", 142, 136},
          {decode, "B=256 H=32 D=128 dtype=bf16 gate=gamma", 280, 272},
          {decode, "B=128 H=16 D=256 dtype=bf16 gate=gamma", 285, 272},
          {decode, "B=256 H=32 D=128 dtype=bf16 gate=gk gate_dtype=io", 285, 275},
      }};
}

}  // namespace

const std::vector<Suite>& suites() {
  static const std::vector<Suite> all{h200()};
  return all;
}

const Suite& find_suite(std::string_view name) {
  std::vector<std::string> known;
  for (const Suite& suite : suites()) {
    if (suite.name == name) return suite;
    known.emplace_back(suite.name);
  }
  throw UsageError(
      str("--suite '", name, "': expected ", join(known, ", "), did_you_mean(name, known)));
}

}  // namespace attune::cli
