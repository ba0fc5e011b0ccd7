#include "support/pairwise.hpp"

#include <utility>

namespace attune::test {
namespace {

using Row = std::vector<std::size_t>;  // a value index a factor; the factor's count: not chosen yet

class PairCover {
 public:
  explicit PairCover(const Row& counts) : counts_(counts), first_(counts.size() + 1, 0) {
    for (std::size_t f = 0; f < counts.size(); ++f) first_[f + 1] = first_[f] + counts[f];
    covered_.resize(first_.back() * first_.back(), 0);
  }

  bool covers(std::size_t a, std::size_t value_a, std::size_t b, std::size_t value_b) const {
    return covered_[(first_[a] + value_a) * first_.back() + first_[b] + value_b] != 0;
  }

  void cover(const Row& row) {
    for (std::size_t a = 0; a < row.size(); ++a) {
      for (std::size_t b = 0; b < row.size(); ++b) {
        covered_[(first_[a] + row[a]) * first_.back() + first_[b] + row[b]] = 1;
      }
    }
  }

  /// The rest of a row, each factor by the value that covers most with what is chosen. Where
  /// several do, `turn` decides, so that the last rows differ in more than they have to.
  Row completed(Row row, std::size_t turn) const {
    for (std::size_t f = 0; f < row.size(); ++f) {
      if (row[f] < counts_[f]) continue;
      std::size_t best = turn % counts_[f];
      for (std::size_t value = 0; value < counts_[f]; ++value) {
        if (gain(row, f, value) > gain(row, f, best)) best = value;
      }
      row[f] = best;
    }
    return row;
  }

 private:
  std::size_t gain(const Row& row, std::size_t factor, std::size_t value) const {
    std::size_t pairs = 0;
    for (std::size_t other = 0; other < row.size(); ++other) {
      if (other == factor || row[other] == counts_[other]) continue;
      pairs += covers(factor, value, other, row[other]) ? 0 : 1;
    }
    return pairs;
  }

  Row counts_;
  Row first_;  // of a factor's values, all factors' counted through
  std::vector<char> covered_;
};

}  // namespace

std::vector<Row> pairwise(const Row& counts) {
  PairCover cover(counts);
  std::vector<Row> rows;
  for (std::size_t a = 0; a < counts.size(); ++a) {
    for (std::size_t b = a + 1; b < counts.size(); ++b) {
      for (std::size_t pair = 0; pair < counts[a] * counts[b]; ++pair) {
        if (cover.covers(a, pair / counts[b], b, pair % counts[b])) continue;
        Row row = counts;
        row[a] = pair / counts[b];
        row[b] = pair % counts[b];
        rows.push_back(cover.completed(std::move(row), rows.size()));
        cover.cover(rows.back());
      }
    }
  }
  return rows;
}

}  // namespace attune::test
