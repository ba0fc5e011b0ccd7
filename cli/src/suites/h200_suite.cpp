// The suite `h200`: what attune and other libraries were measured on first.
#include "suites/suites.hpp"

namespace attune::cli {

/// What flash-linear-attention 0.5.2, vLLM's lightning attention and ejkernel were measured on.
/// `must` is ahead of all of them, `goal` near what the memory allows.
Suite h200_suite() {
  const std::vector<std::string_view> forward{"recurrent_attention"};
  const std::vector<std::string_view> both_passes{"recurrent_attention",
                                                  "recurrent_attention.backward"};
  const std::vector<std::string_view> decode{"recurrent_decode"};
  return {
      .name = "h200",
      .backend = "gpu",
      .copy_bytes_per_us = kH200CopyBytesPerUs,
      .rows = {
          {forward, "B=8 T=2048 H=16 D=128 dtype=bf16 gate=gamma ht=yes", {82, 70}},
          {forward, "B=32 T=512 H=16 D=128 dtype=bf16 gate=gamma ht=yes", {84, 72}},
          {forward, "B=1 T=8192 H=32 D=128 dtype=bf16 gate=gamma ht=yes", {125, 98}},
          {forward, "B=4 T=4096 H=16 D=64 dtype=bf16 gate=gamma ht=yes", {55, 42}},
          {forward, "B=4 T=4096 H=8 D=256 dtype=bf16 gate=gamma ht=yes", {130, 90}},
          {forward, "B=1 T=65536 H=32 D=128 dtype=bf16 gate=gamma ht=yes", {950, 790}},
          {forward, "B=8 T=2048 H=16 D=128 dtype=bf16 gate=g ht=yes", {90, 75}},
          {forward, "B=8 T=2048 H=16 D=128 dtype=f32 gate=gamma ht=yes", {400, 250}},
          {forward, "B=1 T=8192 H=32 D=128 dtype=f32 gate=gamma ht=yes", {550, 350}},
          {forward, "B=4 T=4096 H=16 D=64 dtype=f32 gate=gamma ht=yes", {220, 130}},
          {forward, "B=8 T=2048 H=16 D=128 dtype=bf16 gate=gk gate_dtype=io ht=yes", {170, 110}},
          {forward, "B=1 T=8192 H=32 D=128 dtype=bf16 gate=gk gate_dtype=io ht=yes", {260, 150}},
          {forward, "B=4 T=4096 H=16 D=64 dtype=bf16 gate=gk gate_dtype=io ht=yes", {100, 60}},
          {forward, "B=1 T=65536 H=32 D=128 dtype=bf16 gate=gk gate_dtype=io ht=yes", {2000, 1200}},
          {forward, "B=4 T=4096 H=8 D=256 dtype=bf16 gate=gk gate_dtype=io ht=yes", {300, 150}},
          {both_passes, "B=8 T=2048 H=16 D=128 dtype=bf16 gate=gamma", {330, 260}},
          {both_passes, "B=1 T=8192 H=32 D=128 dtype=bf16 gate=gamma", {450, 345}},
          {both_passes, "B=8 T=2048 H=16 D=128 dtype=bf16 gate=gk gate_dtype=io", {1000, 550}},
          // 1.15 times what a constant decay must take: its gate is 4 bytes a token and head.
          {both_passes, "B=8 T=2048 H=16 D=128 dtype=bf16 gate=g", {380, 0}},
          {decode, "B=1 H=32 D=128 dtype=bf16 gate=gamma", {5, 4}},
          {decode, "B=32 H=32 D=128 dtype=bf16 gate=gamma", {38, 35}},
          {decode, "B=64 H=64 D=128 dtype=bf16 gate=gamma", {142, 136}},
          {decode, "B=256 H=32 D=128 dtype=bf16 gate=gamma", {280, 272}},
          {decode, "B=128 H=16 D=256 dtype=bf16 gate=gamma", {285, 272}},
          {decode, "B=256 H=32 D=128 dtype=bf16 gate=gk gate_dtype=io", {285, 275}},
      }};
}

}  // namespace attune::cli
