// Any schedule of prompts and steps on a pool is one recurrence of each sequence.
#include <algorithm>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include <attune/attune.hpp>

#include "support/campaign.hpp"
#include "support/each_platform.hpp"

namespace attune::test {
namespace {

using ops::recurrent_attention;

constexpr std::int64_t kHeads = 2, kKeys = 20, kValues = 36;
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

/// Serves a few requests at random: prompts in pieces, decoding steps, both in one packed call, on
/// slots that change; and holds every token to one recurrence of its sequence.
class Server {
 public:
  Server(std::uint64_t seed, const ops::CallOptions& call) : random_(seed), call_(call) {
    pool_ = RandomTensors(seed)({kSlots, kHeads, kKeys, kValues});
    for (std::int64_t slot = 0; slot < kSlots; ++slot) free_.push_back(slot);
    for (int n = 0; n < kRequests; ++n) {
      const std::int64_t length = pick(1, 260);
      Request request{
          .in = random_inputs(seed * 100 + std::uint64_t(n), length, kHeads, kKeys, kValues),
          .gk = RandomTensors(seed + std::uint64_t(n)).log_decays({1, length, kHeads, kKeys}),
          .o = Tensor(DType::kF32, {1, length, kHeads, kValues}),
          .length = length};
      requests_.push_back(std::move(request));
    }
  }

  void run() {
    while (step()) continue;
    for (const Request& request : requests_) {
      const auto whole = recurrent_attention(request.in.q, request.in.k, request.in.v,
                                             {.gk = request.gk, .call = call_});
      expect_near(request.o, whole.o, 2 * kTolerance);
    }
  }

 private:
  static constexpr std::int64_t kSlots = 24;
  static constexpr int kRequests = 5;
  struct Request {
    Inputs in;
    Tensor gk, o;
    std::int64_t length = 0, done = 0, slot = -1;
  };
  struct Piece {
    Request* request = nullptr;
    std::int64_t tokens = 0;
  };

  std::int64_t pick(std::int64_t low, std::int64_t high) {
    return std::uniform_int_distribution<std::int64_t>(low, high)(random_);
  }
  std::int32_t take_slot() {
    const std::int64_t slot = free_.back();
    free_.pop_back();
    return static_cast<std::int32_t>(slot);
  }

  /// One packed call; false when all requests are done.
  bool step() {
    std::vector<Piece> pieces;
    bool is_any_left = false;
    const bool decodes = pick(0, 2) == 0;
    for (Request& request : requests_) {
      const std::int64_t left = request.length - request.done;
      if (left == 0) continue;
      is_any_left = true;
      if (decodes && request.slot < 0) continue;
      if (pick(0, 2) == 0) continue;  // waits
      pieces.push_back({&request, decodes || pick(0, 1) == 0 ? 1 : pick(1, left)});
    }
    if (pieces.empty()) return is_any_left;
    decodes ? decode(pieces) : run_pieces(pieces);
    return is_any_left;
  }

  void run_pieces(const std::vector<Piece>& pieces) {
    std::vector<std::int64_t> bounds{0};
    std::vector<std::int32_t> from, to;
    std::vector<std::int64_t> freed;  // once the call is done
    for (const auto& [request, count] : pieces) {
      bounds.push_back(bounds.back() + count);
      from.push_back(static_cast<std::int32_t>(request->slot));
      // In place, or a copy: the slot before stays as it was until the call is done.
      if (request->slot < 0 || pick(0, 1) == 0) {
        if (request->slot >= 0) freed.push_back(request->slot);
        request->slot = take_slot();
      }
      to.push_back(static_cast<std::int32_t>(request->slot));
    }
    const std::int64_t all = bounds.back() + pick(0, 1) * 7;
    const Tensor q = gather(pieces, all, kKeys, [](const Request& r) { return &r.in.q; });
    const Tensor k = gather(pieces, all, kKeys, [](const Request& r) { return &r.in.k; });
    const Tensor v = gather(pieces, all, kValues, [](const Request& r) { return &r.in.v; });
    const Tensor gk = gather(pieces, all, kKeys, [](const Request& r) { return &r.gk; });
    const auto count = static_cast<std::int64_t>(pieces.size());
    const Tensor bound = Tensor::of(bounds, {count + 1});
    const Tensor initial = Tensor::of(from, {count}), final = Tensor::of(to, {count});
    // Every other snapshot of every sequence, wherever there is a slot left.
    const std::int64_t most = all / 64;
    std::vector<std::int32_t> kept(static_cast<std::size_t>(count * most), -1);
    const std::vector<std::int64_t> unused = free_;
    for (std::size_t i = 0; i < kept.size() && free_.size() > 8; i += 2) kept[i] = take_slot();
    free_ = unused;  // nobody reads them
    const Tensor snapshots = Tensor::of(kept, {count, most});
    const auto result = recurrent_attention(q, k, v,
                                            {.gk = gk,
                                             .cu_seqlens = bound,
                                             .states = pool_.view(),
                                             .initial_slots = initial,
                                             .final_slots = final,
                                             .snapshot_every = 64,
                                             .snapshot_slots = snapshots,
                                             .call = call_});
    finish(pieces, result.o);
    free_.insert(free_.end(), freed.begin(), freed.end());
  }

  /// A token of each, in place.
  void decode(const std::vector<Piece>& pieces) {
    const auto count = static_cast<std::int64_t>(pieces.size());
    std::vector<std::int32_t> slots;
    for (const Piece& piece : pieces) {
      slots.push_back(static_cast<std::int32_t>(piece.request->slot));
    }
    const Tensor q = gather(pieces, count, kKeys, [](const Request& r) { return &r.in.q; });
    const Tensor k = gather(pieces, count, kKeys, [](const Request& r) { return &r.in.k; });
    const Tensor v = gather(pieces, count, kValues, [](const Request& r) { return &r.in.v; });
    const Tensor gk = gather(pieces, count, kKeys, [](const Request& r) { return &r.gk; });
    const auto rows = [&](const Tensor& tensor) {
      return ConstTensorView(tensor.view().data, tensor.dtype(),
                             {count, kHeads, tensor.shape()[3]});
    };
    const ConstTensorView decays = rows(gk), indices(slots.data(), {count});
    finish(pieces, ops::recurrent_decode(rows(q), rows(k), rows(v), pool_,
                                         {.gk = decays, .slot_indices = indices, .call = call_}));
  }

  void finish(const std::vector<Piece>& pieces, const Tensor& o) {
    std::int64_t first = 0;
    for (const auto& [request, count] : pieces) {
      copy_tokens(o, first, request->o, request->done, count);
      first += count;
      request->done += count;
      if (request->done == request->length) free_.push_back(request->slot);
    }
  }

  static void copy_tokens(const Tensor& from, std::int64_t first, Tensor& to, std::int64_t at,
                          std::int64_t count) {
    const std::int64_t row = to.view().stride(1);
    std::memcpy(to.values<float>().data() + at * row,
                static_cast<const float*>(from.view().data) + first * row,
                static_cast<std::size_t>(count * row) * sizeof(float));
  }

  template <class Of>
  static Tensor gather(const std::vector<Piece>& pieces, std::int64_t all, std::int64_t width,
                       const Of& of) {
    Tensor packed(DType::kF32, {1, all, kHeads, width});
    std::ranges::fill(packed.values<float>(), kNaN);
    std::int64_t at = 0;
    for (const auto& [request, count] : pieces) {
      copy_tokens(*of(*request), request->done, packed, at, count);
      at += count;
    }
    return packed;
  }

  std::mt19937_64 random_;
  ops::CallOptions call_;
  Tensor pool_;
  std::vector<std::int64_t> free_;
  std::vector<Request> requests_;
};

class PoolSchedules : public EachPlatform {};
INSTANTIATE_TEST_SUITE_P(Platforms, PoolSchedules, cpu_platforms(), platform_name);

TEST_P(PoolSchedules, AreOneRecurrenceOfEachSequence) {
  const int schedules = campaign_length(12, 200);
  for (int seed = 0; seed < schedules; ++seed) {
    SCOPED_TRACE(str("seed ", seed));
    Server(static_cast<std::uint64_t>(seed), call()).run();
  }
}

}  // namespace
}  // namespace attune::test
