// Which tokens of which sequences each rank of a job has, where one sequence is longer than a
// device should walk alone.
//
// Ranks hold ranges of tokens. What a rank holds of one sequence without a gap is a *fragment*,
// which it walks as a sequence of its own. A fragment of tokens acts on the state that comes to it
// as
//
//   S -> A S + E        A = exp(sum of its log decays), elementwise; E its final state from zero
//
// so that the state at a fragment's begin follows from the summaries (E, A) of those before it,
// folded in their order, and from the sequence's initial state. In the backward pass gradients of
// states travel the same way against time. A layout says which summaries are exchanged, each in a
// *slot* of its rank, and which are folded for each fragment. Sun et al., "LASP-2: Rethinking
// Sequence Parallelism for Linear Attention and its Hybrid", arXiv:2502.07563.
//
// A layout is a pure function of its arguments: every rank makes its own and nothing is
// communicated.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace attune::ops::distributed {

/// Tokens [begin, end) of all, counted as cu_seqlens counts them.
struct TokenRange {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  friend bool operator==(const TokenRange&, const TokenRange&) = default;
};

/// The ranges of each rank, in the order in which their tokens lie in its memory.
using TokenOwners = std::vector<std::vector<TokenRange>>;

/// One range a rank, in order, as even as can be: the first ranks have one token more. Throws
/// InvalidArgument unless tokens >= 0 and ranks >= 1.
TokenOwners even_ranges(std::int64_t tokens, int ranks);

/// Two ranges a rank, of 2 * ranks: rank r has number r and number 2 * ranks - 1 - r, as causal
/// attention of other layers is balanced. Throws as above.
TokenOwners zig_zag_ranges(std::int64_t tokens, int ranks);

class SequenceLayout {
 public:
  struct Fragment {
    std::int64_t sequence = 0;  // whose tokens these are
    TokenRange tokens;          // of all; empty for a sequence without tokens
    bool is_first = false;      // of its sequence: its state is the sequence's initial one
    bool is_last = false;       // the state after it is the sequence's final one
  };
  enum class Direction { kForward, kBackward };  // along the tokens, or against them

  /// `cu_seqlens` [N+1]: begins with 0 and does not decrease; of all ranks' tokens together.
  /// `owners`: together each token once; a rank may have none. A sequence without tokens belongs to
  /// the rank that has the token at its offset, at the end to the one with the last token, and
  /// where there are no tokens at all to rank 0. Throws InvalidArgument, naming the argument.
  SequenceLayout(std::span<const std::int64_t> cu_seqlens, const TokenOwners& owners, int rank);

  int rank() const { return rank_; }
  int ranks() const { return ranks_; }
  /// Of cu_seqlens and owners: ranks whose layouts are of one job have the same.
  std::uint64_t digest() const { return digest_; }

  /// This rank's fragments, as they lie in its memory.
  std::span<const Fragment> fragments() const { return fragments_; }
  /// cu_seqlens of this rank's own tokens: [fragments + 1].
  std::span<const std::int64_t> local_cu_seqlens() const { return local_cu_seqlens_; }

  /// How many summaries each rank sends in a direction: what the rank with the most needs. 0: no
  /// sequence goes on elsewhere, nothing is exchanged.
  int slots(Direction direction) const { return of(direction).slots; }
  /// The slot of this rank that a fragment's summary goes to; -1: nobody needs it.
  int slot(std::size_t fragment, Direction direction) const {
    return of(direction).slot.at(fragment);
  }
  /// The summaries that lead to the state that comes to a fragment, in the order to fold them in,
  /// as rank * slots() + slot.
  std::span<const std::int32_t> fold(std::size_t fragment, Direction direction) const {
    return of(direction).fold.at(fragment);
  }

 private:
  struct Exchanged {
    int slots = 0;
    std::vector<int> slot;                        // by fragment of this rank
    std::vector<std::vector<std::int32_t>> fold;  // by fragment of this rank
  };
  const Exchanged& of(Direction direction) const {
    return direction == Direction::kForward ? forward_ : backward_;
  }

  int rank_ = 0;
  int ranks_ = 1;
  std::uint64_t digest_ = 0;
  std::vector<Fragment> fragments_;
  std::vector<std::int64_t> local_cu_seqlens_;
  Exchanged forward_, backward_;
};

}  // namespace attune::ops::distributed
