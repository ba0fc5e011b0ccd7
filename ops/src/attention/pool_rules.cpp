#include "attention/pool_rules.hpp"

#include <algorithm>
#include <array>
#include <numeric>
#include <vector>

#include "operands/host_indices.hpp"

namespace attune::ops {
namespace {

constexpr int kT = size_at<RecurrentAttention>("T");
constexpr int kS = size_at<RecurrentAttention>("S");
constexpr int kM = size_at<RecurrentAttention>("M");
constexpr std::int64_t kSnapshotStep = 64;  // no chunk of tokens is longer

bool is_in_memory(const OperandCheck& check, const ConstTensorView& view) {
  return check.level() == CheckLevel::kMemory && view.device == DeviceId{};
}

/// Each of the slots that a call names, in the order of sequences.
class NamedSlots {
 public:
  explicit NamedSlots(const RecurrentAttentionArgs& args) : args_(args) {}

  std::int64_t sequences() const { return args_.final_slots->size(0); }

  /// visit(name, slot) for each slot that sequence n writes.
  template <class Visit>
  void written_by(std::int64_t n, const Visit& visit) const {
    visit("final_slots", index_at(*args_.final_slots, n));
    if (!args_.snapshot_slots) return;
    const std::int64_t columns = args_.snapshot_slots->size(1);
    for (std::int64_t m = 0; m < columns; ++m) {
      visit("snapshot_slots", index_at(*args_.snapshot_slots, n * columns + m));
    }
  }

  std::int64_t read_by(std::int64_t n) const { return index_at(args_.first_slots(), n); }

 private:
  const RecurrentAttentionArgs& args_;
};

/// Each slot is written once at most, and read by no other sequence than that which writes it. A
/// window of the pool at a time, on the stack: launches allocate nothing.
void check_owners(const OperandCheck& check, const NamedSlots& slots, std::int64_t pool_size) {
  constexpr std::int64_t kNobody = -1;
  std::array<std::int64_t, 2048> owners;
  constexpr auto kWindow = static_cast<std::int64_t>(owners.size());
  for (std::int64_t first = 0; first < pool_size; first += kWindow) {
    owners.fill(kNobody);
    const auto owner_of = [&](std::int64_t slot) -> std::int64_t* {
      const std::int64_t at = slot - first;
      return at >= 0 && at < kWindow ? &owners[static_cast<std::size_t>(at)] : nullptr;
    };
    for (std::int64_t n = 0; n < slots.sequences(); ++n) {
      slots.written_by(n, [&](std::string_view name, std::int64_t slot) {
        std::int64_t* const owner = owner_of(slot);
        if (owner == nullptr) return;
        if (*owner != kNobody) {
          check.refuse(name, "slot ", slot, " stands twice, for sequences ", *owner, " and ", n);
        }
        *owner = n;
      });
    }
    for (std::int64_t n = 0; n < slots.sequences(); ++n) {
      const std::int64_t slot = slots.read_by(n);
      const std::int64_t* const owner = owner_of(slot);
      if (owner == nullptr || *owner == kNobody || *owner == n) continue;
      check.refuse("initial_slots", "sequence ", n, " starts from slot ", slot, ", which sequence ",
                   *owner, " writes");
    }
  }
}

void check_slots(const OperandCheck& check, const RecurrentAttentionArgs& args) {
  const std::int64_t pool_size = check.size(kS);
  const NamedSlots slots(args);
  const auto check_range = [&](std::string_view name, std::int64_t slot) {
    if (slot < pool_size) return;
    check.refuse(name, "slot ", slot, ", expected less than ", pool_size, " (states' slots)");
  };
  for (std::int64_t n = 0; n < slots.sequences(); ++n) {
    slots.written_by(n, check_range);
    if (args.initial_slots) check_range("initial_slots", slots.read_by(n));
  }
  check_owners(check, slots, pool_size);
}

/// There is a slot for every snapshot, as far as lengths are known.
void check_room(const OperandCheck& check, const RecurrentAttentionArgs& args,
                std::int64_t snapshot_every, const ConstTensorView* bounds_host) {
  const std::int64_t sequences = args.final_slots->size(0);
  const ConstTensorView* bounds = bounds_host;
  if (args.cu_seqlens) {
    if (is_in_memory(check, *args.cu_seqlens)) bounds = &*args.cu_seqlens;
    if (bounds == nullptr || check.level() != CheckLevel::kMemory) return;
  }
  for (std::int64_t n = 0; n < sequences; ++n) {
    const std::int64_t tokens =
        args.cu_seqlens ? index_at(*bounds, n + 1) - index_at(*bounds, n) : check.size(kT);
    if (tokens / snapshot_every <= check.size(kM)) continue;
    check.refuse("snapshot_slots", "shape ", args.snapshot_slots->shape,
                 ", expected M >= ", tokens / snapshot_every, " for the ", tokens,
                 " tokens of sequence ", n);
  }
}

}  // namespace

void check_pool(OperandCheck& check, const RecurrentAttentionArgs& args,
                std::int64_t snapshot_every, const ConstTensorView* bounds_host) {
  if (snapshot_every != 0 && !args.states) {
    check.refuse("snapshot_every", "given without states");
  }
  if (!args.states) return;
  if (!args.final_slots) check.refuse("final_slots", "not given, expected with states");
  if (snapshot_every < 0 || snapshot_every % kSnapshotStep != 0) {
    check.refuse("snapshot_every", "got ", snapshot_every, ", expected a multiple of ",
                 kSnapshotStep);
  }
  if (snapshot_every != 0 && !args.snapshot_slots) {
    check.refuse("snapshot_slots", "not given, expected with snapshot_every");
  }
  if (snapshot_every == 0 && args.snapshot_slots) {
    check.refuse("snapshot_slots", "given without snapshot_every");
  }
  if (snapshot_every != 0) check_room(check, args, snapshot_every, bounds_host);
  if (is_in_memory(check, *args.final_slots)) check_slots(check, args);
}

// ---- random cases ----

RandomSlots::RandomSlots(const RecurrentAttentionProblem& problem)
    : sequences_(problem.sequences()) {
  if (problem.snapshot_every > 0) {
    most_ = problem.T / problem.snapshot_every;
    const std::int64_t share = problem.N > 0 ? problem.T / problem.N : problem.T;
    kept_ = std::min(most_, share / problem.snapshot_every + 1);
  }
  size_ = sequences_ * (2 + kept_) + 1;
  step_ = std::max<std::int64_t>(1, size_ * 5 / 8);
  while (std::gcd(step_, size_) != 1) --step_;
}

Tensor RandomSlots::final() const {
  std::vector<std::int32_t> values;
  for (std::int64_t n = 0; n < sequences_; ++n) {
    values.push_back(static_cast<std::int32_t>(final_of(n)));
  }
  return Tensor::of(values, {sequences_});
}

Tensor RandomSlots::initial() const {
  std::vector<std::int32_t> values;
  for (std::int64_t n = 0; n < sequences_; ++n) {
    const std::int64_t own = slot(sequences_ + n);
    const std::int64_t from = n % 3 == 0 ? own : n % 3 == 1 ? final_of(n) : -1;
    values.push_back(static_cast<std::int32_t>(from));
  }
  return Tensor::of(values, {sequences_});
}

Tensor RandomSlots::snapshots() const {
  std::vector<std::int32_t> values;
  for (std::int64_t n = 0; n < sequences_; ++n) {
    for (std::int64_t m = 0; m < most_; ++m) {
      const std::int64_t own = slot(2 * sequences_ + n * kept_ + m);
      values.push_back(static_cast<std::int32_t>(m < kept_ ? own : -1));
    }
  }
  return Tensor::of(values, {sequences_, most_});
}

}  // namespace attune::ops
