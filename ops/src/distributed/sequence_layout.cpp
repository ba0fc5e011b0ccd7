#include <algorithm>
#include <utility>

#include <attune/core/error.hpp>
#include <attune/ops/sequence_layout.hpp>

namespace attune::ops::distributed {
namespace {

using Fragment = SequenceLayout::Fragment;
using Direction = SequenceLayout::Direction;
using Fragments = std::vector<std::vector<Fragment>>;  // by rank

void check_cu_seqlens(std::span<const std::int64_t> cu_seqlens) {
  if (cu_seqlens.empty() || cu_seqlens[0] != 0)
    throw InvalidArgument("cu_seqlens: expected [N+1] offsets that begin with 0");
  const auto fall = std::adjacent_find(cu_seqlens.begin(), cu_seqlens.end(), std::greater<>());
  if (fall == cu_seqlens.end()) return;
  throw InvalidArgument(str("cu_seqlens[", fall - cu_seqlens.begin() + 1, "]: ", fall[1],
                            " is less than the offset before it, ", *fall));
}

/// Each token of `count` once.
void check_owners(const TokenOwners& owners, std::int64_t count) {
  std::vector<TokenRange> ranges;
  for (const auto& of_rank : owners) {
    for (const TokenRange& range : of_rank) {
      if (range.begin < 0 || range.begin > range.end || range.end > count) {
        throw InvalidArgument(str("owners: range [", range.begin, ", ", range.end,
                                  "): expected one within [0, ", count, ")"));
      }
      if (range.begin < range.end) ranges.push_back(range);
    }
  }
  std::sort(ranges.begin(), ranges.end(),
            [](const TokenRange& a, const TokenRange& b) { return a.begin < b.begin; });
  std::int64_t next = 0;
  for (const TokenRange& range : ranges) {
    if (range.begin != next) {
      throw InvalidArgument(str("owners: token ", std::min(range.begin, next), " belongs to ",
                                range.begin > next ? "no rank" : "two ranks"));
    }
    next = range.end;
  }
  if (next != count) throw InvalidArgument(str("owners: token ", next, " belongs to no rank"));
}

/// Adds what `range` holds of each sequence. What goes on without a gap is one fragment.
void add_fragments(std::span<const std::int64_t> cu, const TokenRange& range,
                   std::vector<Fragment>& to) {
  const std::int64_t count = cu.back();
  const auto sequences = static_cast<std::int64_t>(cu.size()) - 1;
  const auto at = [&](std::int64_t i) { return cu[static_cast<std::size_t>(i)]; };
  std::int64_t s = std::lower_bound(cu.begin() + 1, cu.end(), range.begin) - (cu.begin() + 1);
  for (; s < sequences; ++s) {
    const std::int64_t begin = at(s), end = at(s + 1);
    if (begin >= range.end && !(begin == end && begin == count && range.end == count)) break;
    if (begin == end) {
      if (begin >= range.begin) to.push_back({s, {begin, end}, true, true});
      continue;
    }
    const TokenRange piece{std::max(begin, range.begin), std::min(end, range.end)};
    if (piece.begin >= piece.end) continue;  // it ends where the range begins
    const bool goes_on =
        !to.empty() && to.back().sequence == s && to.back().tokens.end == piece.begin;
    if (goes_on) {
      to.back().tokens.end = piece.end;
    } else {
      to.push_back({s, piece, piece.begin == begin, false});
    }
    to.back().is_last = to.back().tokens.end == end;
  }
}

Fragments fragments_of(std::span<const std::int64_t> cu, const TokenOwners& owners) {
  Fragments all(owners.size());
  for (std::size_t rank = 0; rank < owners.size(); ++rank) {
    for (const TokenRange& range : owners[rank]) {
      if (range.begin < range.end) add_fragments(cu, range, all[rank]);
    }
  }
  if (cu.back() == 0) {
    for (std::size_t s = 0; s + 1 < cu.size(); ++s) {
      all[0].push_back({static_cast<std::int64_t>(s), {0, 0}, true, true});
    }
  }
  return all;
}

bool goes_on(const Fragment& fragment, Direction direction) {
  return direction == Direction::kForward ? !fragment.is_last : !fragment.is_first;
}

/// A fragment that some other one needs the summary of.
struct Sender {
  std::int64_t sequence;
  std::int64_t begin;
  int rank;
  int slot;
};

/// All senders, those of a sequence one after the other, in the order of its direction.
std::vector<Sender> senders_of(const Fragments& all, Direction direction) {
  std::vector<Sender> senders;
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    int slot = 0;
    for (const Fragment& fragment : all[rank]) {
      if (!goes_on(fragment, direction)) continue;
      senders.push_back({fragment.sequence, fragment.tokens.begin, static_cast<int>(rank), slot++});
    }
  }
  const std::int64_t sign = direction == Direction::kForward ? 1 : -1;
  std::sort(senders.begin(), senders.end(), [&](const Sender& a, const Sender& b) {
    return std::pair(a.sequence, sign * a.begin) < std::pair(b.sequence, sign * b.begin);
  });
  return senders;
}

/// FNV-1a over the numbers that make a layout.
std::uint64_t digest_of(std::span<const std::int64_t> cu_seqlens, const TokenOwners& owners) {
  std::uint64_t hash = 14695981039346656037ULL;
  const auto add = [&](std::int64_t number) {
    for (int byte = 0; byte < 8; ++byte) {
      hash ^= static_cast<std::uint64_t>(number) >> (8 * byte) & 0xffU;
      hash *= 1099511628211ULL;
    }
  };
  add(static_cast<std::int64_t>(cu_seqlens.size()));
  for (const std::int64_t offset : cu_seqlens) add(offset);
  for (const auto& of_rank : owners) {
    add(static_cast<std::int64_t>(of_rank.size()));
    for (const TokenRange& range : of_rank) {
      add(range.begin);
      add(range.end);
    }
  }
  return hash;
}

TokenOwners cut(std::int64_t tokens, int pieces) {
  if (tokens < 0) throw InvalidArgument(str("tokens: ", tokens, ": expected at least 0"));
  if (pieces < 1) throw InvalidArgument(str("ranks: ", pieces, ": expected at least 1"));
  TokenOwners owners;
  std::int64_t begin = 0;
  for (int piece = 0; piece < pieces; ++piece) {
    const std::int64_t end = begin + tokens / pieces + (piece < tokens % pieces ? 1 : 0);
    owners.push_back({{begin, end}});
    begin = end;
  }
  return owners;
}

}  // namespace

TokenOwners even_ranges(std::int64_t tokens, int ranks) { return cut(tokens, ranks); }

TokenOwners zig_zag_ranges(std::int64_t tokens, int ranks) {
  if (ranks < 1) throw InvalidArgument(str("ranks: ", ranks, ": expected at least 1"));
  TokenOwners pieces = cut(tokens, 2 * ranks);
  for (int rank = 0; rank < ranks; ++rank) {
    const auto mirrored = static_cast<std::size_t>(2 * ranks - 1 - rank);
    pieces[static_cast<std::size_t>(rank)].push_back(pieces[mirrored][0]);
  }
  pieces.resize(static_cast<std::size_t>(ranks));
  return pieces;
}

SequenceLayout::SequenceLayout(std::span<const std::int64_t> cu_seqlens, const TokenOwners& owners,
                               int rank) {
  check_cu_seqlens(cu_seqlens);
  if (rank < 0 || static_cast<std::size_t>(rank) >= owners.size())
    throw InvalidArgument(str("rank: ", rank, ": expected 0 to ", owners.size(), " - 1"));
  check_owners(owners, cu_seqlens.back());
  rank_ = rank;
  ranks_ = static_cast<int>(owners.size());
  digest_ = digest_of(cu_seqlens, owners);
  const Fragments all = fragments_of(cu_seqlens, owners);
  fragments_ = all[static_cast<std::size_t>(rank)];
  local_cu_seqlens_.push_back(0);
  for (const Fragment& fragment : fragments_) {
    const auto [begin, end] = fragment.tokens;
    local_cu_seqlens_.push_back(local_cu_seqlens_.back() + end - begin);
  }
  for (const Direction direction : {Direction::kForward, Direction::kBackward}) {
    Exchanged& exchanged = direction == Direction::kForward ? forward_ : backward_;
    const std::vector<Sender> senders = senders_of(all, direction);
    for (const Sender& sender : senders)
      exchanged.slots = std::max(exchanged.slots, sender.slot + 1);
    int slot = 0;
    for (const Fragment& fragment : fragments_) {
      exchanged.slot.push_back(goes_on(fragment, direction) ? slot++ : -1);
      std::vector<std::int32_t>& fold = exchanged.fold.emplace_back();
      for (const Sender& sender : senders) {
        const bool comes_before = direction == Direction::kForward
                                      ? sender.begin < fragment.tokens.begin
                                      : sender.begin > fragment.tokens.begin;
        if (sender.sequence != fragment.sequence || !comes_before) continue;
        fold.push_back(sender.rank * exchanged.slots + sender.slot);
      }
    }
  }
}

}  // namespace attune::ops::distributed
