// The suite `models`: the linear-attention layers of published models, as they are trained and
// served, and what stands between them: prompts, packed batches, f32.
//
// Heads and channels are those of the published configurations, B and T of one step on one GPU:
//
//   GLA-1.3B      hidden size 2048, 4 heads; keys of half of it, values of all of it
//                 (Yang et al., arXiv:2312.06635)
//   GLA-340M      hidden size 1024, 4 heads, likewise
//   RetNet-1.3B   hidden size 2048, 8 heads, values of twice of it (Sun et al., arXiv:2307.08621)
//   Mamba-2-1.3B  64 heads of 64 channels, a state of 128: K is the state, and k and q, which the
//                 heads share there, are each head's own here (Dao and Gu, arXiv:2405.21060)
//   HGRN2-1.3B    hidden size 2048, states of 128 x 128 (Qin et al., arXiv:2404.07904)
//   MiniMax-01    64 heads of 128 channels (arXiv:2501.08313)
#include "suites/suites.hpp"

namespace attune::cli {

Suite models_suite() {
  const std::vector<std::string_view> forward{"recurrent_attention"};
  const std::vector<std::string_view> both{"recurrent_attention", "recurrent_attention.backward"};
  const std::vector<std::string_view> decode{"recurrent_decode"};
  Suite suite{
      .name = "models", .backend = "gpu", .copy_bytes_per_us = kH200CopyBytesPerUs, .rows = {}};
  const auto add = [&](std::string_view about, const std::vector<std::string_view>& ops,
                       std::string_view spec, Bound us) {
    suite.rows.push_back({.ops = ops, .spec = spec, .us = us, .about = about});
  };
  const auto train = [&](std::string_view about, std::string_view spec, Bound fwd, Bound fwd_bwd) {
    add(about, forward, spec, fwd);
    add(about, both, spec, fwd_bwd);
  };
  train("GLA-1.3B", "B=4 T=2048 H=4 K=256 V=512 dtype=bf16 gate=gk gate_dtype=io", {95, 60},
        {600, 320});
  train("GLA-340M", "B=8 T=2048 H=4 K=128 V=256 dtype=bf16 gate=gk gate_dtype=io", {60, 45},
        {330, 220});
  train("RetNet-1.3B", "B=4 T=2048 H=8 K=256 V=512 dtype=bf16 gate=gamma", {90, 70}, {700, 400});
  train("Mamba-2-1.3B", "B=4 T=2048 H=64 K=128 V=64 dtype=bf16 gate=g", {106, 103}, {450, 380});
  train("HGRN2-1.3B", "B=4 T=2048 H=16 D=128 dtype=bf16 gate=gk gate_dtype=io", {65, 52},
        {370, 260});
  add("MiniMax-01", forward, "B=1 T=16384 H=64 D=128 dtype=bf16 gate=gamma", {280, 268});
  add("MiniMax-01, 1 of 8 GPUs", forward, "B=1 T=32768 H=8 D=128 dtype=bf16 gate=gamma", {105, 88});

  add("prompt", forward, "T=128 H=16 D=128 dtype=bf16 gate=gamma", {5.5, 4.5});
  add("prompt", forward, "T=512 H=16 D=128 dtype=bf16 gate=gamma", {10, 8});
  add("prompt", forward, "T=2048 H=16 D=128 dtype=bf16 gate=gamma", {21, 16});
  add("prompt", forward, "T=4096 H=16 D=128 dtype=bf16 gate=gamma", {34, 27});
  add("prompt", forward, "T=128 H=16 D=128 dtype=bf16 gate=gk gate_dtype=io", {8, 6});
  add("prompt", forward, "T=512 H=16 D=128 dtype=bf16 gate=gk gate_dtype=io", {17, 12});
  add("prompt", forward, "T=2048 H=16 D=128 dtype=bf16 gate=gk gate_dtype=io", {28, 21});
  add("prompt", forward, "T=4096 H=16 D=128 dtype=bf16 gate=gk gate_dtype=io", {44, 34});

  train("packed", "T=16384 N=16 H=16 D=128 dtype=bf16 gate=gk gate_dtype=io", {125, 95},
        {720, 480});
  train("f32", "B=4 T=2048 H=16 D=64 gate=gamma", {80, 55}, {400, 250});
  train("f32", "B=4 T=2048 H=16 D=64 gate=g", {80, 55}, {400, 250});
  train("f32", "B=4 T=2048 H=16 D=64 gate=gk", {150, 80}, {550, 330});
  add("wide heads", both, "B=4 T=4096 H=8 D=256 dtype=bf16 gate=gamma", {520, 350});
  add("wide heads", both, "B=4 T=4096 H=8 D=256 dtype=bf16 gate=gk gate_dtype=io", {950, 550});

  add("GLA-1.3B", decode, "B=1 H=4 K=256 V=512 dtype=bf16 gate=gk gate_dtype=io", {3.3, 2.6});
  add("GLA-1.3B", decode, "B=16 H=4 K=256 V=512 dtype=bf16 gate=gk gate_dtype=io", {18, 17});
  add("GLA-1.3B", decode, "B=128 H=4 K=256 V=512 dtype=bf16 gate=gk gate_dtype=io", {134, 131});
  return suite;
}

}  // namespace attune::cli
