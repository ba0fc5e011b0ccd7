// A program that serves: many calls of few problems. What it computes with was decided elsewhere;
// docs/tuning.md shows how its problems are recorded, tuned and shipped; `session` beside this file
// plays that.
#include <cstdio>
#include <string>
#include <vector>

#include <attune/attune.hpp>

namespace {

/// One request: a sequence of T tokens, 2 heads of 32 channels, a decay for each key channel.
float serve(std::int64_t T) {
  constexpr std::int64_t H = 2, D = 32;
  const attune::Extents shape{1, T, H, D};
  const std::vector<float> x(static_cast<std::size_t>(T * H * D), 0.1F);
  const std::vector<float> decay(x.size(), -0.05F);
  const attune::ConstTensorView view(x.data(), shape);
  const auto result = attune::ops::gated_linear_attention(view, view, view, {decay.data(), shape});
  return result.o.values<float>().back();
}

}  // namespace

int main() {
  float sum = 0;
  for (int request = 0; request < 40; ++request) {
    sum += serve(request % 4 == 0 ? 384 : 64);  // three short ones to a long one
  }
  const auto counters = attune::chain_of(attune::default_context()).counters();
  std::printf("sum %.4f; tunings %d, found in databases %d, heuristic %d\n",
              static_cast<double>(sum), static_cast<int>(counters.tunings),
              static_cast<int>(counters.persistent_hits), static_cast<int>(counters.heuristics));
}
