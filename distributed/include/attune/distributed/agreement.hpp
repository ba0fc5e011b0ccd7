// Whether the ranks of a job choose alike.
//
// Ranks that tune each for itself do not: times differ by more than the candidates do. Ranks that
// read one database at different moments do not, either. That matters where a choice decides what
// several ranks do together, and where results are to be the same bits everywhere. No look-up of
// attune ever communicates; agreement is these calls, in this order, before a graph is captured:
//
//   tune_together(...)    tune_together.hpp; or databases that `attune tune` made before the job
//   freeze(context)       from here on choices do not change
//   agree(...)            the same digest everywhere?
//
// For job scripts: `attune db digest` prints what one database decides.
#pragma once

#include <string>
#include <vector>

#include <attune/core/context.hpp>
#include <attune/core/exchange.hpp>

namespace attune::distributed {

/// 32 hexadecimal digits over all that choices for devices of `device`'s class follow from: the
/// rows, pins and quarantined candidates that look-ups see, layer by layer, the kernels that are
/// registered, the versions of attune and of the driver, and the context's policy. Contexts with
/// equal digests that are frozen make equal choices for equal problems, tuned or not. (Overrides,
/// scopes and other platforms are the caller's.) XXH3, 128 bits, against accidents, not against
/// people.
///
/// Throws InvalidArgument for a context with another selector than attune's chain.
std::string decisions_digest(Context& context, const Device& device);

struct Agreement {
  std::vector<std::string> digests;  // by rank
  std::vector<int> differing;        // the ranks that do not have the digest that most have
  bool equal() const { return differing.empty(); }
  /// "all 8 ranks choose alike", or "ranks 3, 5 of 8 choose otherwise".
  std::string text() const;
};

/// Compares the ranks' digests: one all_gather of 32 bytes of host memory. Throws what the exchange
/// throws.
Agreement agree(Exchange& exchange, Context& context, const Device& device);

/// From here on the context's choices do not change: nothing is tuned, no database is read again,
/// and memory is emptied of what was chosen before, so that every choice follows from what the
/// digest is over. Overrides and overlays hold as ever; a problem without a row takes the
/// heuristic. Plans keep what they hold. `forget`, `retune` and tunings throw InvalidArgument;
/// `reload` does nothing. There is no way back.
///
/// Throws InvalidArgument for a context with another selector than attune's chain.
void freeze(Context& context);

}  // namespace attune::distributed
