// Selection: from a problem to a kernel and its config. core declares the seam, tuner fills it with
// the ConfigSelectorChain; a program may bring a selector of its own.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <attune/core/kernel.hpp>
#include <attune/core/registry.hpp>
#include <attune/core/workspace.hpp>

namespace attune {

/// Where a choice was found, in the order of asking.
enum class Tier : std::uint8_t {
  kOverride,
  kOverlay,
  kPin,
  kMemory,
  kPersistent,
  kAutotune,
  kHeuristic
};

/// "override", "overlay", "pin", "memory", "persistent", "autotune", "heuristic".
std::string_view to_string(Tier tier);

/// A kernel and config by name: an override, an overlay, a pin, or a database row. What it does not
/// name is as the kernel's heuristic has it.
struct NamedConfig {
  std::string kernel;  // "" in an override: the best kernel that takes the params
  Params params;

  /// "kernel=simd.recurrent_attention,tile_v=64" or only "tile_v=64". Throws InvalidArgument.
  static NamedConfig parse(std::string_view text);
};

/// What a choice must keep to besides being right. Part of the key where it is given: a problem is
/// tuned under constraints, and found again under the same.
struct Constraints {
  std::size_t workspace_bytes = kNoLimit;  // that it needs, at most
  /// Its error, at most: the worst relative RMS error of an output against the oracle, on the op's
  /// reduced problem. Only what a tuning has measured is known to keep it.
  double error = std::numeric_limits<double>::infinity();

  bool any() const { return workspace_bytes != kNoLimit || bounds_error(); }
  bool bounds_error() const { return error < std::numeric_limits<double>::infinity(); }
  friend bool operator==(const Constraints&, const Constraints&) = default;
};

/// What a caller asks for besides the problem.
struct Request {
  const Device* device = nullptr;  // where the tensors are
  ShortName platform = kAutoPlatform;
  const NamedConfig* config = nullptr;  // an override; borrowed for the call
  void* stream = nullptr;               // while it is capturing, nothing is tuned
  std::string_view called_as = {};  // the alias the caller used, for events; "" for the op itself
  Constraints constraints = {};
  /// Scratch memory that a choice may need. It bounds what is picked and is no part of the key:
  /// what is stored and needs more is passed over.
  std::size_t workspace_limit = kNoLimit;
  CallMemory memory = {};  // of a call that runs at once
};

/// What the memory cache is keyed by: plain words, hashed and compared as they are.
struct SelectionKey {
  std::uint64_t op = 0;  // op_id()
  const Device* device = nullptr;
  ShortName platform;
  std::uint64_t most_workspace = kNoLimit;   // Constraints::workspace_bytes
  std::uint64_t most_error = kAnyError;      // the bits of Constraints::error
  std::uint64_t workspace_limit = kNoLimit;  // of choices made for a limit that others exceed
  FieldValues problem;

  static constexpr std::uint64_t kAnyError =
      std::bit_cast<std::uint64_t>(std::numeric_limits<double>::infinity());

  friend bool operator==(const SelectionKey&, const SelectionKey&) = default;
};

template <class Op>
SelectionKey selection_key(const typename Op::Problem& problem, const Request& request) {
  return {.op = op_id(Op::kName),
          .device = request.device,
          .platform = request.platform,
          .most_workspace = request.constraints.workspace_bytes,
          .most_error = std::bit_cast<std::uint64_t>(request.constraints.error),
          .problem = field_values<Op>(problem)};
}
SelectionKey selection_key(const OpInfo& op, ProblemRef problem, const Request& request);

/// A selected kernel and config. The kernel lives as long as the context's registry.
struct Choice {
  const ErasedKernel* kernel = nullptr;
  ConfigBlob config;
  Tier tier = Tier::kHeuristic;    // where it was found this time
  Tier origin = Tier::kHeuristic;  // how it came to be known: what a memory hit was first
  bool bucket_hit = false;         // tuned for a neighbour in the same bucket, not for this problem
  bool stale = false;  // of a row measured with another version of kernel, library or driver
  const Prepared* prepared = nullptr;  // by a kernel that prepares, which owns it

  /// What a launch needs of it: `prepared`, or made now where a selector has left that out.
  const Prepared* prepare(ProblemRef problem, const Device& device) const;
};

/// What one tier said. `explain` prints one line for each.
struct TierNote {
  Tier tier = Tier::kHeuristic;
  enum class Outcome { kChosen, kMiss, kRefused, kNotAsked } outcome = Outcome::kMiss;
  std::string config;  // "kernel config" when the tier has an answer, chosen or not
  std::string reason;  // why it was chosen or passed over
};

/// A choice with everything that led to it.
struct Decision {
  std::optional<Choice> choice;  // nothing: `error` says why
  std::string error;
  std::vector<TierNote> notes;  // one a tier, in order
};

class ConfigSelector {
 public:
  virtual ~ConfigSelector() = default;

  /// The choice for a problem. Throws InvalidArgument (an override that does not fit), Unsupported,
  /// Unavailable or NotTuned. Safe from any number of threads.
  virtual Choice select(const SelectionKey& key, ProblemRef problem, const Request& request) = 0;

  /// What select() would do and why, for every tier, without tuning, storing or changing anything.
  virtual Decision explain(ProblemRef problem, const Request& request) = 0;

  /// Drops what memory and the user's database know of the problem; the next call selects anew.
  virtual void forget(ProblemRef problem, const Request& request) = 0;

  /// Tunes the problem now, whatever is known or the policy says. Throws Unsupported or
  /// ExecutionError.
  virtual Choice retune(ProblemRef problem, const Request& request) = 0;

  /// Reads again what is known, and forgets what memory holds of it: each problem's next call
  /// selects anew. Calls in progress on other threads go on, without waiting.
  virtual void reload() {}
};

}  // namespace attune
