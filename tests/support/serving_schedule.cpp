#include "support/serving_schedule.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <deque>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <attune/attune.hpp>
#include <attune/core/params.hpp>

#include "support/each_platform.hpp"

namespace attune::test {
namespace {

constexpr std::int64_t kHeads = 4, kKvHeads = 2, kSlots = 48, kSnapshotEvery = 64;
constexpr std::size_t kRequests = 4, kMostRequests = 7;  // without and with forks
constexpr std::int64_t kMostTokens = 4;                  // of a step
constexpr std::size_t kSlotsForSteps = 20;               // that snapshots leave free
constexpr int kPoison = 0xff;                            // bytes of a NaN of any type

enum Part : std::size_t { kQ, kK, kV, kGate, kParts };
using Tokens = std::array<Tensor, kParts>;

/// What a sequence may be off by: of a state that is rounded once a step, and of o.
double tolerance_of(const ServedModel& model) {
  if (model.states == DType::kBF16) return 4e-2;
  if (model.states == DType::kF16 || model.dtype != DType::kF32) return kTolerance16;
  return 2 * kTolerance;
}

/// Tensors of a model's tokens, [rows, tokens] of each.
class TokenShapes {
 public:
  explicit TokenShapes(const ServedModel& model) : model_(model) {}

  bool has(Part part) const { return part != kGate || model_.gate != "gamma"; }
  DType dtype(Part part) const { return part == kGate ? DType::kF32 : model_.dtype; }
  Extents shape(Part part, std::int64_t rows, std::int64_t tokens) const {
    if (part == kGate && model_.gate == "g") return {rows, tokens, kHeads};
    if (part == kV) return {rows, tokens, kKvHeads, model_.V};
    return {rows, tokens, part == kK ? kKvHeads : kHeads, model_.K};
  }
  Tensor poisoned(Part part, std::int64_t rows, std::int64_t tokens) const {
    if (!has(part)) return {};
    Tensor tensor(dtype(part), shape(part, rows, tokens));
    std::memset(tensor.view().data, kPoison, tensor.bytes());
    return tensor;
  }
  Tokens random(RandomTensors& random, std::int64_t tokens) const {
    Tokens made;
    for (const Part part : {kQ, kK, kV}) made[part] = random(shape(part, 1, tokens), model_.dtype);
    if (has(kGate)) made[kGate] = random.log_decays(shape(kGate, 1, tokens));
    return made;
  }

 private:
  const ServedModel& model_;
};

/// Copies `count` tokens, which are rows of equal length in both.
void copy_tokens(const Tensor& from, std::int64_t first, Tensor& to, std::int64_t at,
                 std::int64_t count) {
  if (from.bytes() == 0 || count == 0) return;
  const auto each = static_cast<std::int64_t>(from.bytes()) / (from.shape()[0] * from.shape()[1]);
  std::memcpy(static_cast<std::byte*>(to.view().data) + at * each,
              static_cast<const std::byte*>(from.view().data) + first * each,
              static_cast<std::size_t>(count * each));
}

struct Request {
  Tokens in = {};
  Tensor o = {};
  std::int64_t length = 0;
  std::int64_t begin = 0;    // tokens that another sequence has run
  std::int64_t done = 0;     // tokens that are accepted
  std::int64_t pending = 0;  // of these, the last ones, which its state has not taken
  std::int32_t slot = -1;

  bool is_finished() const { return done == length; }
};

class Schedule {
 public:
  Schedule(std::uint64_t seed, const KernelOnDevice& on, const ServedModel& model)
      : random_(seed),
        values_(seed),
        model_(model),
        shapes_(model_),
        on_(on),
        device_(*on.device),
        kernel_(str("kernel=", on.kernel->name())),
        decay_(DType::kF32, {kHeads}),
        pool_(model.states, {kSlots, kHeads, model.K, model.V}, device_) {
    call_ = {.platform = platform_of(*on.kernel), .context = &heuristic_context()};
    device_.fill(pool_.view().data, std::byte{kPoison}, pool_.bytes(), nullptr);
    before_ = to_host(pool_, device_);
    for (std::int32_t slot = 0; slot < kSlots; ++slot) free_.push_back(slot);
    std::shuffle(free_.begin(), free_.end(), random_);
    junk_.in = shapes_.random(values_, kMostTokens);
    std::ranges::fill(decay_.values<float>(), -0.1F);
    decay_there_ = on_device(decay_);
    while (requests_.size() < kRequests) add_request(shapes_.random(values_, pick(1, 260)));
  }

  int batches_of_the_kernel() const { return batches_of_the_kernel_; }

  void run() {
    while (std::ranges::any_of(requests_, [](const Request& r) { return !r.is_finished(); })) {
      temporary_.clear();
      written_.clear();
      pick(0, 2) == 0 ? run_packed() : run_step();
      expect_untouched();
      if (testing::Test::HasFailure()) return;
    }
    for (const Request& request : requests_) {
      ops::RecurrentAttentionOptions options{
          .call = {.platform = "reference", .context = &heuristic_context()}};
      set_gates(request.in[kGate], decay_, options);
      const Tensor expected =
          ops::recurrent_attention(request.in[kQ], request.in[kK], request.in[kV], options).o;
      expect_near(tokens(request.o, request.begin, request.length),
                  tokens(expected, request.begin, request.length), tolerance_of(model_));
    }
  }

 private:
  /// Tokens [first, first + count) of a sequence stand in a batch from its row `at` on.
  struct Piece {
    Request* of = nullptr;
    std::int64_t first = 0, count = 0, at = 0;
  };

  std::int64_t pick(std::int64_t low, std::int64_t high) {
    return low + static_cast<std::int64_t>(random_() % static_cast<std::uint64_t>(high - low + 1));
  }
  bool coin() { return pick(0, 1) == 0; }
  std::int32_t take_slot() {
    const std::int32_t slot = free_.front();
    free_.pop_front();
    return slot;
  }

  Request& add_request(Tokens in) {
    const std::int64_t length = in[kQ].shape()[1];
    Tensor o(model_.dtype, {1, length, kHeads, model_.V});
    requests_.push_back({.in = std::move(in), .o = std::move(o), .length = length});
    return requests_.back();
  }

  Tensor on_device(const Tensor& host) const {
    Tensor there(host.dtype(), host.shape(), device_);
    if (host.bytes() > 0) {
      device_.copy_to_device(there.view().data, host.view().data, host.bytes(), nullptr);
      device_.synchronize(nullptr);
    }
    return there;
  }
  /// Until the call is over.
  ConstTensorView put(const Tensor& host) { return temporary_.emplace_back(on_device(host)); }
  ConstTensorView put(const std::vector<std::int32_t>& values, const Extents& shape) {
    return put(Tensor::of(values, shape));
  }
  using Views = std::array<ConstTensorView, kParts>;
  /// The rest of the rows is poison.
  Views put_tokens(const std::vector<Piece>& pieces, std::int64_t rows, std::int64_t tokens) {
    Views views;
    for (const Part part : {kQ, kK, kV, kGate}) {
      if (!shapes_.has(part)) continue;
      Tensor batch = shapes_.poisoned(part, rows, tokens);
      for (const Piece& piece : pieces) {
        copy_tokens(piece.of->in[part], piece.first, batch, piece.at, piece.count);
      }
      views[part] = put(batch);
    }
    return views;
  }

  template <class Options>
  void set_gates(const ConstTensorView& gate, const ConstTensorView& decay,
                 Options& options) const {
    if (model_.gate == "g") options.g = gate;
    if (model_.gate == "gk") options.gk = gate;
    if constexpr (requires { options.g_gamma; }) {
      if (model_.gate == "gamma") options.g_gamma = decay;
    }
  }

  // ---- a packed batch ----

  bool takes(std::int64_t tokens, std::int64_t sequences) const {
    const std::string problem =
        str("T=", tokens, " N=", sequences,
            " pool=yes initial_slots=yes snapshot_every=", kSnapshotEvery, model_.text());
    return bool(on_.kernel->erased_supports(on_.op->parse(parse_params(problem, ' ')), on_.info()));
  }

  void run_packed() {
    std::vector<Piece> pieces;
    std::vector<std::int32_t> bounds{0}, from, to;
    std::vector<std::int32_t> given_up;  // that the batch reads, or writes for nobody
    for (Request& request : requests_) {
      const std::int64_t left = request.length - request.done;
      if (left == 0 || pick(0, 2) == 0) continue;
      const std::int64_t count = request.pending + (coin() ? 1 : pick(1, left));
      pieces.push_back({&request, request.done - request.pending, count, bounds.back()});
      bounds.push_back(bounds.back() + static_cast<std::int32_t>(count));
      from.push_back(request.slot);
      if (request.slot < 0 || coin()) {  // a copy, else in place
        if (request.slot >= 0) given_up.push_back(request.slot);
        request.slot = take_slot();
      }
      const bool is_last = request.done - request.pending + count == request.length;
      to.push_back(is_last && coin() ? -1 : request.slot);
      if (to.back() >= 0) written_.insert(to.back());
    }
    if (pieces.empty()) return;
    const std::int64_t all = bounds.back() + 7 * pick(0, 1), most = all / kSnapshotEvery;
    const auto count = static_cast<std::int64_t>(pieces.size());
    const std::vector<std::int32_t> snapshots = snapshot_slots(pieces, most, given_up);
    const auto in = put_tokens(pieces, 1, all);
    ops::RecurrentAttentionOptions options{.cu_seqlens = put(bounds, {count + 1}),
                                           .states = pool_.view(),
                                           .initial_slots = put(from, {count}),
                                           .final_slots = put(to, {count}),
                                           .snapshot_every = kSnapshotEvery,
                                           .snapshot_slots = put(snapshots, {count, most}),
                                           .call = call_};
    if (takes(all, count)) {
      options.call.config = kernel_;
      ++batches_of_the_kernel_;
    }
    set_gates(in[kGate], decay_there_, options);
    const Tensor o = to_host(ops::recurrent_attention(in[kQ], in[kK], in[kV], options).o, device_);
    keep(o, pieces);
    expect_zero(o.view().slice(1, bounds.back(), all));  // "Padded batches"
    for (const Piece& piece : pieces) {
      piece.of->done = piece.first + piece.count;
      piece.of->pending = 0;
      release_if_finished(*piece.of);
    }
    free_.insert(free_.end(), given_up.begin(), given_up.end());
  }

  /// For some of the states on the way: where a new sequence goes on from, or nobody's.
  std::vector<std::int32_t> snapshot_slots(const std::vector<Piece>& pieces, std::int64_t most,
                                           std::vector<std::int32_t>& given_up) {
    std::vector<std::int32_t> slots;
    for (const Piece& piece : pieces) {
      for (std::int64_t i = 0; i < most; ++i) {
        const std::int64_t tokens = (i + 1) * kSnapshotEvery;
        slots.push_back(-1);
        if (tokens > piece.count || free_.size() <= kSlotsForSteps || coin()) continue;
        slots.back() = take_slot();
        written_.insert(slots.back());
        if (requests_.size() < kMostRequests) {
          fork(*piece.of, piece.first + tokens, slots.back());
        } else {
          given_up.push_back(slots.back());
        }
      }
    }
    return slots;
  }

  void fork(const Request& of, std::int64_t prefix, std::int32_t slot) {
    const std::int64_t length = prefix + pick(1, 80);
    Tokens in = shapes_.random(values_, length);
    for (const Part part : {kQ, kK, kV, kGate}) copy_tokens(of.in[part], 0, in[part], 0, prefix);
    Request& request = add_request(std::move(in));
    request.begin = request.done = prefix;
    request.slot = slot;
  }

  // ---- a step of one token or a few ----

  enum class Way { kPlain, kKept, kReplay };

  void run_step() {
    const auto way = static_cast<Way>(pick(0, 2));
    std::vector<Request*> rows;
    std::int64_t tokens = pick(1, kMostTokens);
    for (Request& request : requests_) {
      if (request.is_finished() || request.slot < 0 || pick(0, 3) == 0) continue;
      if (way != Way::kReplay && request.pending > 0) continue;
      if (way == Way::kPlain) tokens = std::min(tokens, request.length - request.done);
      if (way == Way::kKept && rows.size() == 4) continue;  // as many have slots for it
      rows.push_back(&request);
    }
    if (rows.empty()) return;
    if (coin()) rows.push_back(nullptr);  // padding
    std::shuffle(rows.begin(), rows.end(), random_);

    const auto count = static_cast<std::int64_t>(rows.size());
    std::vector<std::int64_t> accepted;
    std::vector<Piece> pieces, right;
    for (std::int64_t row = 0; row < count; ++row) {
      Request* const request = rows[static_cast<std::size_t>(row)];
      accepted.push_back(0);
      if (request == nullptr) continue;
      const std::int64_t left = request->length - request->done;
      accepted.back() = way == Way::kPlain ? tokens : pick(1, std::min(tokens, left));
      right.push_back({request, request->done, accepted.back(), row * tokens});
      pieces.push_back(right.back());
      pieces.push_back({&junk_, 0, tokens - accepted.back(), row * tokens + accepted.back()});
    }
    const auto in = put_tokens(pieces, count, tokens);
    ops::RecurrentDecodeOptions options{.call = call_};
    set_gates(in[kGate], decay_there_, options);
    if (way == Way::kKept) {
      name_kept_slots(rows, tokens, accepted, options);
    } else {
      name_slots(rows, way, options);
    }
    const Tensor o =
        to_host(ops::recurrent_decode(in[kQ], in[kK], in[kV], pool_, options), device_);
    keep(o, right);
    for (std::size_t row = 0; row < rows.size(); ++row) {
      const auto at = static_cast<std::int64_t>(row);
      if (rows[row] == nullptr) expect_zero(o.view().slice(0, at, at + 1));
      if (rows[row] == nullptr) continue;
      rows[row]->done += accepted[row];
      rows[row]->pending = way == Way::kReplay ? accepted[row] : 0;
      release_if_finished(*rows[row]);
    }
  }

  /// Slots, and for a replay the tokens that are pending; a row of padding has none or no count.
  void name_slots(const std::vector<Request*>& rows, Way way,
                  ops::RecurrentDecodeOptions& options) {
    const auto count = static_cast<std::int64_t>(rows.size());
    std::int64_t replayed = 1;
    for (const Request* const request : rows) {
      if (request != nullptr) replayed = std::max(replayed, request->pending);
    }
    std::vector<std::int32_t> slots, counts;
    std::vector<Piece> pieces;
    for (std::int64_t row = 0; row < count; ++row) {
      Request* const request = rows[static_cast<std::size_t>(row)];
      const bool has_no_count = request == nullptr && way == Way::kReplay && coin();
      slots.push_back(request != nullptr ? request->slot : has_no_count ? free_.front() : -1);
      counts.push_back(has_no_count ? -1 : 0);
      if (request == nullptr) continue;
      counts.back() = static_cast<std::int32_t>(request->pending);
      pieces.push_back(
          {request, request->done - request->pending, request->pending, row * replayed});
      if (way == Way::kPlain || request->pending > 0) written_.insert(request->slot);
    }
    options.slot_indices = put(slots, {count});
    if (way == Way::kPlain) return;
    const auto in = put_tokens(pieces, count, replayed);
    options.committed = ops::CommittedTokens{.k = in[kK], .v = in[kV]};
    set_gates(in[kGate], decay_there_, *options.committed);
    options.committed->accepted = put(counts, {count});
  }

  /// A row starts anywhere in its part of the table; the state after its last accepted token is
  /// its own from now on.
  void name_kept_slots(const std::vector<Request*>& rows, std::int64_t tokens,
                       const std::vector<std::int64_t>& accepted,
                       ops::RecurrentDecodeOptions& options) {
    std::vector<std::int32_t> table, starts, unused;
    for (std::size_t row = 0; row < rows.size(); ++row) {
      const std::int64_t start = pick(0, tokens - 1), end = accepted[row] - 1;
      starts.push_back(rows[row] == nullptr ? -1 : static_cast<std::int32_t>(start + 1));
      for (std::int64_t t = 0; t < tokens; ++t) {
        if (rows[row] != nullptr && t == start) {
          table.push_back(rows[row]->slot);
        } else {
          const bool is_kept = t == end || coin();
          table.push_back(is_kept ? take_slot() : -1);
        }
        const std::int32_t slot = table.back();
        if (slot < 0) continue;
        if (rows[row] != nullptr) written_.insert(slot);
        if (t != end) unused.push_back(slot);
      }
      if (rows[row] != nullptr) rows[row]->slot = table[table.size() - std::size_t(tokens - end)];
    }
    const auto count = static_cast<std::int64_t>(rows.size());
    options.kept_slots = put(table, {count, tokens});
    options.accepted = put(starts, {count});
    free_.insert(free_.end(), unused.begin(), unused.end());
  }

  // ---- what must be ----

  static void keep(const Tensor& o, const std::vector<Piece>& pieces) {
    for (const Piece& piece : pieces) {
      copy_tokens(o, piece.at, piece.of->o, piece.first, piece.count);
    }
  }
  static void expect_zero(const ConstTensorView& rows) {
    for (const double value : to_doubles(rows)) ASSERT_EQ(value, 0.0) << "of padding";
  }

  void release_if_finished(Request& request) {
    if (!request.is_finished()) return;
    if (request.slot >= 0) free_.push_back(request.slot);
    request.slot = -1;
    request.pending = 0;
  }

  void expect_untouched() {
    Tensor now = to_host(pool_, device_);
    const std::size_t each = now.bytes() / kSlots;
    const auto slot_of = [&](const Tensor& pool, std::int32_t slot) {
      return static_cast<const std::byte*>(pool.view().data) + std::size_t(slot) * each;
    };
    for (std::int32_t slot = 0; slot < kSlots; ++slot) {
      if (written_.contains(slot)) continue;
      ASSERT_EQ(std::memcmp(slot_of(now, slot), slot_of(before_, slot), each), 0)
          << "slot " << slot << " was not named";
    }
    before_ = std::move(now);
  }

  std::mt19937_64 random_;
  RandomTensors values_;
  ServedModel model_;
  TokenShapes shapes_;
  const KernelOnDevice on_;
  const Device& device_;
  const std::string kernel_;
  int batches_of_the_kernel_ = 0;
  ops::CallOptions call_;
  Tensor decay_, decay_there_;
  Tensor pool_, before_;
  std::deque<Tensor> temporary_;
  std::deque<std::int32_t> free_;
  std::set<std::int32_t> written_;
  std::deque<Request> requests_;
  Request junk_;
};

}  // namespace

std::string ServedModel::text() const {
  return str(" H=", kHeads, " Hkv=", kKvHeads, " K=", K, " V=", V, " dtype=", to_string(dtype),
             " gate=", gate, " state=", to_string(states));
}

int run_serving_schedule(std::uint64_t seed, const KernelOnDevice& on, const ServedModel& model) {
  Schedule schedule(seed, on, model);
  schedule.run();
  return schedule.batches_of_the_kernel();
}

std::string platform_of(const ErasedKernel& kernel) {
  return str(heuristic_context().registry().find_kernel(kernel.name())->at.platform);
}

}  // namespace attune::test
