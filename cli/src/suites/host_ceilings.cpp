#include "suites/host_ceilings.hpp"

#include <algorithm>

#include <attune/core/parallel_for.hpp>

namespace attune::cli {
namespace {

using yardsticks::Loops;

const Loops& widest() { return yardsticks::loops_of_this_cpu().front(); }

constexpr std::int64_t kCacheLine = 16;  // in floats

/// Calls body(first, count) on equal shares of whole cache lines.
template <class Body>
void share(std::int64_t count, int threads, const Body& body) {
  const std::int64_t lines = count / kCacheLine;
  parallel_for(threads, threads, [&](std::int64_t part) {
    const std::int64_t first = lines * part / threads * kCacheLine;
    body(first, lines * (part + 1) / threads * kCacheLine - first);
  });
}

/// `loop` is Loops or TileProducts.
template <class Loop>
Ceiling arithmetic_ceiling(const Loop& loop, std::int64_t steps, int threads) {
  const auto run = [loop, steps, threads] {
    parallel_for(threads, threads, [&](std::int64_t) {
      const volatile float result = loop.multiply_add(steps);
      static_cast<void>(result);
    });
  };
  return {.name = "multiply-add " + std::string(loop.isa),
          .work = run,
          .amount = static_cast<double>(loop.flops_per_step * steps * threads)};
}

constexpr double kBytesMoved = 2 * sizeof(float);  // an element is read and written

}  // namespace

Ceiling multiply_add_ceiling(const Loops& loops, int threads, std::int64_t steps) {
  return arithmetic_ceiling(loops, steps, threads);
}

std::optional<Ceiling> tile_ceiling(const DeviceInfo& host, int threads) {
  const auto products = yardsticks::tile_products();
  if (!products || !host.has(products->isa)) return std::nullopt;
  return arithmetic_ceiling(*products, 20'000, threads);
}

CeilingMemory::CeilingMemory(std::int64_t bytes)
    : count_(bytes / static_cast<std::int64_t>(sizeof(float))),
      from_(DType::kF32, {count_}),
      to_(DType::kF32, {count_}) {
  std::ranges::fill(from_.values<float>(), 1.0F);
  std::ranges::fill(to_.values<float>(), 1.0F);
}

Ceiling CeilingMemory::update(std::int64_t bytes, int threads) {
  const std::int64_t count = bytes / static_cast<std::int64_t>(sizeof(float));
  auto* const values = to_.values<float>().data();
  const auto run = [=] {
    share(count, threads,
          [&](std::int64_t first, std::int64_t part) { widest().update(values + first, part); });
  };
  return {"update", run, kBytesMoved * static_cast<double>(count)};
}

std::vector<Ceiling> CeilingMemory::copies(std::int64_t bytes, int threads) {
  const std::int64_t count = bytes / static_cast<std::int64_t>(sizeof(float));
  const auto* const from = from_.values<float>().data();
  auto* const to = to_.values<float>().data();
  std::vector<Ceiling> ceilings;
  const auto add = [&](const char* name, auto* copy) {
    if (copy == nullptr) return;
    const auto run = [=] {
      share(count, threads,
            [&](std::int64_t first, std::int64_t part) { copy(from + first, to + first, part); });
    };
    ceilings.push_back({name, run, kBytesMoved * static_cast<double>(count)});
  };
  add("copy", widest().copy);
  add("copy past caches", widest().copy_past_caches);
  return ceilings;
}

double host_copy_bytes_per_us(int threads) {
  constexpr std::int64_t kBytes = 128 << 20;
  CeilingMemory memory(kBytes);
  MeasureSettings few;
  few.iters = 5;
  double most = 0;
  for (const Ceiling& copy : memory.copies(kBytes, threads)) {
    const HostRounds rounds = take_rounds(std::span(&copy.work, 1), few);
    if (!rounds.us.front().empty())
      most = std::max(most, copy.amount / median_of(rounds.us.front()));
  }
  return most;
}

}  // namespace attune::cli
