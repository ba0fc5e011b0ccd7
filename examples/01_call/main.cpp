// Gated linear attention on host vectors: two sequences of 256 tokens, 4 heads of 64 channels.
#include <cstdio>
#include <vector>

#include <attune/attune.hpp>

int main() {
  constexpr std::int64_t B = 2, T = 256, H = 4, D = 64;
  std::vector<float> q(B * T * H * D, 0.1F), k = q, v = q;
  std::vector<float> gate(B * T * H * D, -0.05F);  // log decay of every key channel

  const attune::Extents shape{B, T, H, D};
  auto [o, state] =
      attune::ops::gated_linear_attention({q.data(), shape}, {k.data(), shape}, {v.data(), shape},
                                          {gate.data(), shape}, {.want_final_state = true});

  std::printf("o[0]        = %.6f\n", static_cast<double>(o.values<float>()[0]));
  std::printf("o[last]     = %.6f\n", static_cast<double>(o.values<float>().back()));
  std::printf("state[last] = %.6f\n", static_cast<double>(state->values<float>().back()));
}
