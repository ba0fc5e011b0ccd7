#include "memory_overlap.hpp"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <span>
#include <utility>

namespace attune {
namespace {

constexpr int kMaxTerms = 2 * Extents::kMaxRank;
constexpr std::int64_t kMaxReach = std::int64_t{1} << 61;  // sums of two stay in 63 bits
constexpr int kMaxSteps = 2000;

/// A multiple c * stride that the distance of two elements may contain, low <= c <= high.
struct Term {
  std::int64_t stride = 0;  // bytes, > 0
  std::int64_t low = 0;
  std::int64_t high = 0;
  std::int64_t narrower_low = 0;   // what the terms of narrower strides come to, at least
  std::int64_t narrower_high = 0;  // and at most
};

std::int64_t divide_up(std::int64_t a, std::int64_t b) {
  return a / b + (a % b > 0 ? 1 : 0);  // a remainder has the sign of a
}
std::int64_t divide_down(std::int64_t a, std::int64_t b) { return a / b - (a % b < 0 ? 1 : 0); }

/// All distances of an element of one array from an element of another: distance + sum of terms.
class Distances {
 public:
  Distances(const ViewRef& a, const ViewRef& b, std::int64_t between_firsts)
      : constant_(between_firsts) {
    add(a, true);
    add(b, false);
    const std::span<Term> terms(terms_.data(), count_);
    std::ranges::sort(terms, {}, &Term::stride);
    std::int64_t low = 0;
    std::int64_t high = 0;
    for (Term& term : terms) {
      term.narrower_low = low;
      term.narrower_high = high;
      low += term.low * term.stride;
      high += term.high * term.stride;
    }
  }

  /// Whether one of them lies in [least, most]; true when that takes too long to find out.
  bool reach(std::int64_t least, std::int64_t most) {
    return reach_by(count_, least - constant_, most - constant_);
  }

 private:
  void add(const ViewRef& view, bool positive) {
    const auto width = static_cast<std::int64_t>(size_of(view.dtype()));
    for (int dim = 0; dim < view.rank(); ++dim) {
      if (view.size(dim) == 1 || view.stride(dim) == 0) continue;
      const std::int64_t stride = std::abs(view.stride(dim)) * width;
      const std::int64_t last = view.size(dim) - 1;
      // A dimension that runs backwards is the same set of addresses run forwards from its end;
      // `between_firsts` is taken from the least addresses.
      Term* term = std::find_if(terms_.data(), terms_.data() + count_,
                                [&](const Term& t) { return t.stride == stride; });
      if (term == terms_.data() + count_) terms_[count_++].stride = stride;
      (positive ? term->high : term->low) += positive ? last : -last;
    }
  }

  /// Whether the sum of the `count` narrowest terms can lie in [least, most].
  bool reach_by(std::size_t count, std::int64_t least, std::int64_t most) {
    if (count == 0) return least <= 0 && 0 <= most;
    if (++steps_ > kMaxSteps) return true;
    const Term& term = terms_[count - 1];
    const std::int64_t low = std::max(term.low, divide_up(least - term.narrower_high, term.stride));
    const std::int64_t high =
        std::min(term.high, divide_down(most - term.narrower_low, term.stride));
    for (std::int64_t c = low; c <= high; ++c) {
      if (reach_by(count - 1, least - c * term.stride, most - c * term.stride)) return true;
    }
    return false;
  }

  std::int64_t constant_;
  std::array<Term, kMaxTerms> terms_{};  // narrowest stride first
  std::size_t count_ = 0;
  int steps_ = 0;
};

}  // namespace

bool address_range(const ViewRef& view, AddressRange& range) {
  range = {};
  if (view.empty()) return true;
  std::int64_t low = 0;
  std::int64_t high = 0;
  const auto width = static_cast<std::int64_t>(size_of(view.dtype()));
  for (int dim = 0; dim < view.rank(); ++dim) {
    std::int64_t reach = 0;
    if (__builtin_mul_overflow(view.size(dim) - 1, view.stride(dim), &reach) ||
        __builtin_mul_overflow(reach, width, &reach)) {
      return false;
    }
    std::int64_t& side = reach < 0 ? low : high;
    if (__builtin_add_overflow(side, reach, &side)) return false;
  }
  const auto base = static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(view.data()));
  std::int64_t first = 0;
  std::int64_t end = 0;
  if (__builtin_add_overflow(base, low, &first) || __builtin_add_overflow(base, high, &end) ||
      __builtin_add_overflow(end, width, &end)) {
    return false;
  }
  range = {first, end};
  return true;
}

bool dense_address_range(const ViewRef& view, AddressRange& range) {
  std::int64_t step = 1;
  for (int dim = view.rank() - 1; dim >= 0; --dim) {
    if (view.size(dim) != 1 && view.stride(dim) != step) return false;
    if (__builtin_mul_overflow(step, view.size(dim), &step)) return false;
  }
  const auto base = static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(view.data()));
  range.first = base;
  return !__builtin_mul_overflow(step, static_cast<std::int64_t>(size_of(view.dtype())), &step) &&
         !__builtin_add_overflow(base, step, &range.end);
}

bool share_memory(const ViewRef& a, const ViewRef& b) {
  AddressRange of_a;
  AddressRange of_b;
  if (a.empty() || b.empty()) return false;
  if (!address_range(a, of_a) || !address_range(b, of_b)) return true;
  if (of_a.end <= of_b.first || of_b.end <= of_a.first) return false;
  if (of_a.end - of_a.first > kMaxReach || of_b.end - of_b.first > kMaxReach) return true;
  // The element at p of width w_a and the one at q of width w_b share a byte when
  // -w_a < p - q < w_b.
  Distances distances(a, b, of_a.first - of_b.first);
  return distances.reach(1 - static_cast<std::int64_t>(size_of(a.dtype())),
                         static_cast<std::int64_t>(size_of(b.dtype())) - 1);
}

bool overlaps_itself(const ViewRef& view) {
  if (view.empty()) return false;
  struct Axis {
    std::int64_t stride;
    std::int64_t last;
  };
  std::array<Axis, Extents::kMaxRank> dims{};
  int count = 0;
  for (int dim = 0; dim < view.rank(); ++dim) {
    if (view.size(dim) == 1) continue;
    dims[static_cast<std::size_t>(count++)] = {std::abs(view.stride(dim)), view.size(dim) - 1};
  }
  for (int i = 1; i < count; ++i) {  // by stride; five at most
    for (std::size_t j = static_cast<std::size_t>(i); j > 0; --j) {
      if (dims[j - 1].stride <= dims[j].stride) break;
      std::swap(dims[j - 1], dims[j]);
    }
  }
  std::int64_t reach = 0;  // of all narrower dimensions together
  for (int i = 0; i < count; ++i) {
    const Axis& dim = dims[static_cast<std::size_t>(i)];
    if (dim.stride <= reach) return true;
    reach += dim.stride * dim.last;
  }
  return false;
}

}  // namespace attune
