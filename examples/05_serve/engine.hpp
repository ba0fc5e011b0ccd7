// The engine: sequences that are served together, on a pool of states a layer.
//
// While there are prompts, a step is one packed call a layer: prompts in chunks, up to a budget of
// tokens, and what decodes. Snapshots of a prompt's states every 64 tokens go to slots of their
// own; a later prompt with the same beginning starts from one: copy on write, as that slot is not
// the one it ends in.
//
// Without prompts a step decodes speculatively: a token that is certain, and drafts. Before a state
// meets them, it takes those tokens of the last step that were right (`committed`). This step has
// the same rows on the same memory each time, and is one CUDA graph.
#pragma once

#include <algorithm>
#include <chrono>
#include <list>
#include <optional>
#include <utility>
#include <vector>

#include "model.hpp"
#include "stream.hpp"

namespace serve {

using Clock = std::chrono::steady_clock;
using std::int64_t, std::size_t;

constexpr size_t kActive = 12, kStep = 4;  // sequences served at once, tokens of each in a step
constexpr size_t kSlots = 96, kBudget = 256, kSnapshotEvery = 64;
constexpr size_t kMostSnapshots = kBudget / kSnapshotEvery;  // of a prompt in a step
constexpr int64_t kLayers = Model::kLayers, kHeads = Model::kHeads, kChannels = Model::kChannels;

struct Sequence {
  Integers tokens = {};  // the prompt, and what was generated; drafts while a step runs
  size_t prompt = 0, length = 0;
  size_t taken = 0;                   // tokens that its state has
  std::int32_t from = -1, slot = -1;  // where its state is now; its own slot
  Floats logits = {};                 // of each generated token
};

class Engine {
 public:
  Engine(const Model& model, Context& context, const Device& device)
      : model_(model), stream_(device) {
    call_ = {.context = &context, .stream = stream_.handle()};
    for (std::int32_t slot = 0; slot < std::int32_t{kSlots}; ++slot) free_.push_back(slot);
    const int64_t values = kLayers * int64_t{kActive * kStep * Model::kWidth};
    q_k_v_ = stream_.floats({3 * values});
    committed_ = stream_.floats({2 * values});
    o_ = stream_.floats({values});
    slots_ = stream_.put(Integers(kActive, -1), {kActive});
    accepted_ = stream_.put(Integers(kActive, 0), {kActive});
    for (size_t layer = 0; layer < kLayers; ++layer) add_layer(layer);
  }

  size_t active() const { return active_.size(); }

  /// From the longest beginning of its prompt that is cached; a token at least is left.
  void admit(Sequence& sequence) {
    for (const auto& [prefix, slot] : cache_) {
      if (prefix.size() >= sequence.prompt || prefix.size() <= sequence.taken) continue;
      if (!std::equal(prefix.begin(), prefix.end(), sequence.tokens.begin())) continue;
      sequence.taken = prefix.size();
      sequence.from = slot;
    }
    cached_tokens += sequence.taken;
    sequence.slot = take_slot();
    active_.push_back(&sequence);
  }

  void step() {
    const bool has_prompts = std::ranges::any_of(
        active_, [](const Sequence* sequence) { return sequence->taken < sequence->prompt; });
    ++(has_prompts ? packed_steps : decode_steps);
    has_prompts ? run_packed() : decode();
    std::erase_if(active_, [&](const Sequence* sequence) {
      if (sequence->tokens.size() < sequence->length) return false;
      free_.push_back(sequence->slot);
      return true;
    });
  }

  size_t cached_tokens = 0, packed_steps = 0, decode_steps = 0, drafts = 0, right_drafts = 0;
  Clock::duration in_attention{}, in_logits{};

 private:
  struct Layer {
    Tensor slopes, pool, workspace;
    std::optional<Plan<ops::RecurrentDecode>> step;
    ops::RecurrentDecodeArgs step_args;
  };

  void add_layer(size_t layer) {
    const Extents rows{kActive, kStep, kHeads, kChannels};
    const auto in = [&](size_t i) { return part(q_k_v_, 3 * layer + i, rows); };
    Layer& made = layers_.emplace_back();
    made.slopes = stream_.put(Model::slopes(layer), {kHeads});
    made.pool = stream_.floats({kSlots, kHeads, kChannels, kChannels});
    const ops::LightningDecodeOptions options{
        .slopes = made.slopes.view(),
        .slot_indices = slots_.view(),
        .committed = ops::CommittedTokens{.k = part(committed_, 2 * layer, rows),
                                          .v = part(committed_, 2 * layer + 1, rows),
                                          .accepted = accepted_.view()},
        .call = call_};
    made.step = ops::plan_lightning_decode(in(0), in(1), in(2), made.pool, options);
    made.step_args =
        ops::lightning_decode_args(part(o_, layer, rows), in(0), in(1), in(2), made.pool, options);
    made.workspace = stream_.floats({int64_t(made.step->workspace_bytes() / sizeof(float) + 1)});
  }

  // ---- a step with prompts ----

  void run_packed() {
    std::vector<Sequence*> batch;
    std::vector<Place> places;
    Integers bounds{0}, from, to, snapshots;
    size_t budget = kBudget;
    for (Sequence* const sequence : active_) {
      const size_t left = sequence->tokens.size() - sequence->taken;
      const bool is_prompt = sequence->taken < sequence->prompt;
      size_t count = is_prompt ? std::min(left, budget) : left;
      if (count < left) count -= count % kSnapshotEvery;  // the next one's snapshots, too
      if (is_prompt) budget -= count;
      if (count == 0) continue;
      for (size_t t = 0; t < count; ++t) {
        places.push_back({&sequence->tokens, sequence->taken + t, places.size()});
      }
      batch.push_back(sequence);
      bounds.push_back(std::int32_t(places.size()));
      from.push_back(sequence->from);
      to.push_back(sequence->slot);
      for (size_t end = kSnapshotEvery; end <= kBudget; end += kSnapshotEvery) {
        const bool is_passed = is_prompt && end <= count;
        snapshots.push_back(is_passed ? cache_slot(*sequence, sequence->taken + end) : -1);
      }
    }
    const Floats o = attend(places, bounds, from, to, snapshots);
    for (size_t n = 0; n < batch.size(); ++n) {
      batch[n]->taken += size_t(bounds[n + 1] - bounds[n]);
      batch[n]->from = batch[n]->slot;
      if (batch[n]->taken < batch[n]->tokens.size()) continue;
      sample(*batch[n], o, places.size(), size_t(bounds[n + 1] - 1));
    }
  }

  Floats attend(const std::vector<Place>& places, const Integers& bounds, const Integers& from,
                const Integers& to, const Integers& snapshots) {
    const auto start = Clock::now();
    const auto tokens = int64_t(places.size()), count = int64_t(from.size());
    const Extents each{tokens, kHeads, kChannels};
    const Floats rows = model_.gather(places, "qkv", places.size());
    Tensor in = stream_.put(rows, {int64_t(rows.size())});
    Tensor o = stream_.floats({kLayers, tokens, kHeads, kChannels});
    const Tensor ends = stream_.put(bounds, {count + 1}), first = stream_.put(from, {count}),
                 last = stream_.put(to, {count}),
                 kept = stream_.put(snapshots, {count, kMostSnapshots});
    for (size_t layer = 0; layer < kLayers; ++layer) {
      ops::lightning_attention_into({.o = part(o, layer, each)}, part(in, 3 * layer, each),
                                    part(in, 3 * layer + 1, each), part(in, 3 * layer + 2, each),
                                    {.slopes = layers_[layer].slopes.view(),
                                     .cu_seqlens = ends.view(),
                                     .states = layers_[layer].pool.view(),
                                     .initial_slots = first.view(),
                                     .final_slots = last.view(),
                                     .snapshot_every = kSnapshotEvery,
                                     .snapshot_slots = kept.view(),
                                     .call = call_});
    }
    Floats host = stream_.get(o);
    in_attention += Clock::now() - start;
    return host;
  }

  /// A slot for the state behind the first tokens; none where it is cached, or few are free.
  std::int32_t cache_slot(const Sequence& sequence, size_t count) {
    const auto first = sequence.tokens.begin();
    Integers prefix(first, first + int64_t(count));
    const auto is_it = [&](const auto& entry) { return entry.first == prefix; };
    if (free_.size() <= kActive || std::ranges::any_of(cache_, is_it)) return -1;
    return cache_.emplace_back(std::move(prefix), take_slot()).second;
  }
  std::int32_t take_slot() {
    const std::int32_t slot = free_.front();
    free_.pop_front();
    return slot;
  }

  // ---- a step of decoding alone ----

  void decode() {
    const auto start = Clock::now();
    Integers slots(kActive, -1), accepted(kActive, 0);  // -1: padding
    std::vector<Place> now, before;
    for (size_t n = 0; n < active_.size(); ++n) {
      Integers& tokens = active_[n]->tokens;
      const size_t taken = active_[n]->taken, certain = tokens.size() - 1;
      slots[n] = active_[n]->slot;
      accepted[n] = std::int32_t(certain - taken);
      add_drafts(tokens);
      for (size_t t = taken; t < certain; ++t)
        before.push_back({&tokens, t, n * kStep + t - taken});
      for (size_t t = 0; t < kStep; ++t) now.push_back({&tokens, certain + t, n * kStep + t});
      active_[n]->taken = certain;
    }
    stream_.copy(model_.gather(now, "qkv", kActive * kStep), q_k_v_);
    stream_.copy(model_.gather(before, "kv", kActive * kStep), committed_);
    stream_.copy(slots, slots_);
    stream_.copy(accepted, accepted_);
    stream_.replay([&] {
      for (Layer& layer : layers_) {
        auto* const workspace = static_cast<std::byte*>(layer.workspace.view().data);
        layer.step->launch(layer.step_args, stream_.handle(),
                           {workspace, layer.step->workspace_bytes()});
      }
    });
    const Floats o = stream_.get(o_);
    in_attention += Clock::now() - start;
    for (size_t n = 0; n < active_.size(); ++n) keep_right(*active_[n], o, n * kStep);
  }

  /// What came after the last two tokens when they last stood together.
  static void add_drafts(Integers& tokens) {
    const auto none = tokens.end() - 1;
    const auto found = std::find_end(tokens.begin(), none, tokens.end() - 2, tokens.end());
    size_t from = size_t(found - tokens.begin()) + (found == none ? 0 : 2);
    for (size_t i = 1; i < kStep; ++i) tokens.push_back(tokens[from++]);
  }

  /// The drafts that are what the model says itself, and what it says behind them.
  void keep_right(Sequence& sequence, const Floats& o, size_t row) {
    const Integers drafted(sequence.tokens.end() - (kStep - 1), sequence.tokens.end());
    sequence.tokens.resize(sequence.tokens.size() - drafted.size());
    drafts += drafted.size();
    for (size_t i = 0;; ++i, ++right_drafts) {
      sample(sequence, o, kActive * kStep, row + i);
      if (sequence.tokens.size() == sequence.length || i == drafted.size()) return;
      if (sequence.tokens.back() != drafted[i]) return;
    }
  }

  void sample(Sequence& sequence, const Floats& o, size_t rows, size_t row) {
    const auto start = Clock::now();
    const Floats logits = model_.logits(o, rows, row);
    sequence.logits.insert(sequence.logits.end(), logits.begin(), logits.end());
    sequence.tokens.push_back(std::int32_t(std::ranges::max_element(logits) - logits.begin()));
    in_logits += Clock::now() - start;
  }

  const Model& model_;
  Stream stream_;
  ops::CallOptions call_;
  std::vector<Layer> layers_;
  Tensor q_k_v_, committed_, o_, slots_, accepted_;  // of decoding
  std::list<std::int32_t> free_;
  std::list<std::pair<Integers, std::int32_t>> cache_;  // prefixes and their slots
  std::vector<Sequence*> active_;
};

}  // namespace serve
