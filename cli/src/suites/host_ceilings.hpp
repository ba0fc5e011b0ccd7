// What the host can do at most: multiply-adds, and bytes read and written.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <attune/core/tensor.hpp>

#include "suites/host_samples.hpp"
#include "yardsticks/loops.hpp"

namespace attune::cli {

/// Work with a known number of operations or bytes.
struct Ceiling {
  std::string
      name;  // "multiply-add avx512", "multiply-add amx_bf16", "update", "copy", "copy past caches"
  HostWork work;
  double amount = 0;  // flops or bytes of one run
};

Ceiling multiply_add_ceiling(const yardsticks::Loops& loops, int threads,
                             std::int64_t steps = 100'000);

/// Of bf16 products in tile registers; nothing where `host` has none.
std::optional<Ceiling> tile_ceiling(const DeviceInfo& host, int threads);

/// Memory that ceilings read and write.
class CeilingMemory {
 public:
  explicit CeilingMemory(std::int64_t bytes);
  std::int64_t bytes() const { return count_ * static_cast<std::int64_t>(sizeof(float)); }

  /// Ceilings over the first `bytes` of it, for as long as it lives: an update in place, and copies
  /// to as much memory behind it.
  Ceiling update(std::int64_t bytes, int threads);
  std::vector<Ceiling> copies(std::int64_t bytes, int threads);

 private:
  std::int64_t count_;
  Tensor from_, to_;
};

/// What the better of the copies reads and writes in a microsecond, of more than caches hold.
double host_copy_bytes_per_us(int threads);

}  // namespace attune::cli
