#include "rank_sequences.hpp"

#include <algorithm>
#include <bit>
#include <vector>

namespace attune::bench {

Tensor tokens_of(int stream, std::int64_t first, std::int64_t count, float low, float high,
                 const Rank& rank) {
  constexpr std::int64_t kPeriod = 4099;
  std::vector<std::uint16_t> values(static_cast<std::size_t>(kPeriod * kRow));
  auto bits = static_cast<std::uint32_t>(stream);
  for (std::uint16_t& value : values) {
    bits += 747796405U;
    std::uint32_t mixed = bits;  // the rounds of MurmurHash3's finaliser
    mixed = (mixed ^ mixed >> 16) * 0x85ebca6bU;
    mixed = (mixed ^ mixed >> 13) * 0xc2b2ae35U;
    mixed ^= mixed >> 16;
    const float number = low + (high - low) * static_cast<float>(mixed >> 8) * 0x1p-24F;
    value = static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(number) >> 16);
  }
  constexpr std::size_t kBytes = kRow * sizeof(std::uint16_t);
  Tensor block(DType::kBF16, {1, kPeriod, kHeads, kWidth}, rank.device());
  Tensor all(DType::kBF16, {1, count, kHeads, kWidth}, rank.device());
  check(cudaMemcpy(block.view().data, values.data(), block.bytes(), cudaMemcpyHostToDevice),
        "cudaMemcpy");
  auto* const to = static_cast<std::byte*>(all.view().data);
  const auto* const from = static_cast<const std::byte*>(block.view().data);
  for (std::int64_t t = 0; t < count;) {
    const std::int64_t at = (first + t) % kPeriod, some = std::min(kPeriod - at, count - t);
    check(cudaMemcpy(to + std::size_t(t) * kBytes, from + std::size_t(at) * kBytes,
                     std::size_t(some) * kBytes, cudaMemcpyDeviceToDevice),
          "cudaMemcpy");
    t += some;
  }
  return all;
}

Tokens::Tokens(Kind of, std::int64_t first, std::int64_t count, Rank& on)
    : kind(of),
      rank(on),
      q(tokens_of(1, first, count, -1, 1, on)),
      k(tokens_of(2, first, count, -1, 1, on)),
      v(tokens_of(3, first, count, -1, 1, on)),
      o(DType::kBF16, {1, count, kHeads, kWidth}, on.device()),
      gamma(DType::kF32, {kHeads}, on.device()),
      final_state(DType::kF32, {1, kHeads, kWidth, kWidth}, on.device()) {
  std::vector<float> decays;  // of a memory of 100 to 1,700 tokens
  for (std::int64_t h = 0; h < kHeads; ++h) decays.push_back(-1.0F / float(100 + 50 * h));
  check(cudaMemcpy(gamma.view().data, decays.data(), gamma.bytes(), cudaMemcpyHostToDevice),
        "cudaMemcpy");
  if (kind == Kind::kKeys) gk = tokens_of(4, first, count, -0.02F, 0, on);
  if (kind != Kind::kTraining) return;
  d_o = tokens_of(5, first, count, -1, 1, on);
  for (Tensor* const gradient : {&dq, &dk, &dv})
    *gradient = Tensor(DType::kBF16, q.shape(), on.device());
  dgamma = Tensor(DType::kF32, {kHeads}, on.device());
}

}  // namespace attune::bench
