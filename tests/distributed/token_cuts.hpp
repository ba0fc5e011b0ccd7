// Tokens dealt to ranks at random.
#pragma once

#include <algorithm>
#include <random>
#include <set>

#include <attune/ops/sequence_layout.hpp>

namespace attune::test {

/// Any cuts, dealt to any ranks, some of which may have none.
inline ops::distributed::TokenOwners random_ranges(std::int64_t tokens, int ranks,
                                                   std::mt19937& random) {
  std::set<std::int64_t> cuts{0, tokens};
  for (int i = 0; i < 2 * ranks && tokens > 0; ++i) {
    cuts.insert(static_cast<std::int64_t>(random()) % (tokens + 1));
  }
  ops::distributed::TokenOwners owners(static_cast<std::size_t>(ranks));
  for (auto cut = cuts.begin(); std::next(cut) != cuts.end(); ++cut) {
    owners[random() % owners.size()].push_back({*cut, *std::next(cut)});
  }
  for (auto& ranges : owners) std::shuffle(ranges.begin(), ranges.end(), random);
  return owners;
}

}  // namespace attune::test
