// How near problems are, and rows by their problems with the fields left out that may differ between
// neighbours.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <attune/cache/config_store.hpp>

namespace attune {

/// A problem's text taken apart.
struct ScaledProblem {
  std::string rest;  // what neighbours have in common; a 0 stays here, since nothing is near it
  std::vector<double> sizes;  // log2 of the others, in the order of the text
};

/// Nothing when the text cannot be read.
std::optional<ScaledProblem> scaled_problem(std::string_view problem,
                                            const std::vector<std::string>& scalable);

/// The sum of |log2(a / b)| over the sizes; both have as many.
double octaves_between(const ScaledProblem& a, const ScaledProblem& b);

/// How far apart two problems of one bucket are: the sum of |log2(a / b)| over the fields that are
/// numbers in both texts ("B=1 T=512 dtype=f32"). Infinite when a text cannot be read.
double problem_distance(std::string_view a, std::string_view b);

/// Rows of one op, of all layers. Holds pointers to them.
class NeighbourIndex {
 public:
  explicit NeighbourIndex(std::vector<std::string> scalable) : scalable_(std::move(scalable)) {}

  struct Entry {
    const ConfigRow* row = nullptr;
    Layer layer = Layer::kUser;
    const std::string* path = nullptr;
    ScaledProblem problem;
  };
  void add(const ConfigRow& row, Layer layer, const std::string& path);

  struct Found {
    const Entry* entry;
    double octaves;
  };
  /// Rows of the key's device class and platform within `octaves`, but for its own.
  std::vector<Found> find(const RowKey& key, double octaves) const;

  const std::vector<std::string>& scalable() const { return scalable_; }

 private:
  static std::string place_of(const RowKey& key, const std::string& rest);

  std::vector<std::string> scalable_;
  std::multimap<std::string, Entry> entries_;
};

}  // namespace attune
