// A serving engine in one file: continuous batching on a pool of states.
//
// Requests arrive while others are served. A step packs what there is to do into one batch: a token
// for each sequence that decodes, and prompts in chunks, up to a budget of tokens. Each layer is
// one call then: lightning_attention() on the pool for a batch with prompts, lightning_decode() for
// decoding rows alone. While a prompt is walked, snapshots of its state every 64 tokens go to slots
// of their own, and a later prompt with the same beginning starts from one: copy on write, as the
// slot that it starts from is not the one that it ends in.
// In the end every sequence's logits are held against one plain recurrence over all of its tokens.
#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <functional>
#include <list>
#include <numeric>
#include <random>
#include <vector>

#include <attune/attune.hpp>

namespace {

using namespace attune;
using Clock = std::chrono::steady_clock;
using Floats = std::vector<float>;
using Integers = std::vector<std::int32_t>;

constexpr std::int64_t kHeads = 4, kChannels = 32, kWidth = kHeads * kChannels;
constexpr std::size_t kLayers = 2, kVocabulary = 256;
constexpr std::size_t kSlots = 96, kActive = 12;  // of each pool; sequences served at once
constexpr std::int64_t kBudget = 256, kSnapshotEvery = 64;  // tokens, of prompts in a step
constexpr std::int64_t kMostSnapshots = kBudget / kSnapshotEvery;

// ---- the model: lightning attention on a residual stream, with random weights ----

/// from[tokens, kWidth] weights[kWidth, columns] + to[tokens, columns]
Floats product(const Floats& from, const Floats& weights, Floats to = {}) {
  const std::size_t tokens = from.size() / kWidth, columns = weights.size() / kWidth;
  to.resize(tokens * columns);
  parallel_for(std::int64_t(tokens), usable_cores(), [&](std::int64_t t) {
    float* const target = to.data() + t * std::int64_t(columns);
    for (std::size_t i = 0; i < kWidth; ++i) {
      const float x = from[std::size_t(t) * kWidth + i];
      for (std::size_t j = 0; j < columns; ++j) target[j] += x * weights[i * columns + j];
    }
  });
  return to;
}

Floats normalised(Floats x) {
  for (auto row = x.begin(); row != x.end(); row += kWidth) {
    const float squares = std::inner_product(row, row + kWidth, row, 0.0F);
    for (std::int64_t i = 0; i < kWidth; ++i) row[i] /= std::sqrt(squares / kWidth + 1e-6F);
  }
  return x;
}

struct AttentionCall {  // tensors are [tokens, H, D]
  std::size_t layer = 0;
  ConstTensorView q, k, v, slopes;
  TensorView o;
};

struct Model {
  Model() {
    std::mt19937 random(5);
    std::normal_distribution<float> normal(0, 1 / std::sqrt(float{kWidth}));
    const auto draw = [&](Floats& weights, std::size_t columns) {
      weights.resize(kWidth * columns);
      for (float& weight : weights) weight = normal(random);
    };
    draw(embedding, kVocabulary);
    draw(to_logits, kVocabulary);
    for (Floats& weights : to_qkv) draw(weights, 3 * kWidth);
    for (Floats& weights : to_residual) draw(weights, kWidth);
  }

  /// Behind the last layer: [tokens, kWidth].
  Floats run(const Integers& tokens,
             const std::function<void(const AttentionCall&)>& attention) const {
    Floats x;
    for (const std::int32_t token : tokens) {
      const auto row = embedding.begin() + token * kWidth;
      x.insert(x.end(), row, row + kWidth);
    }
    const Extents shape{static_cast<std::int64_t>(tokens.size()), kHeads, kChannels};
    for (std::size_t layer = 0; layer < kLayers; ++layer) {
      const Floats qkv = product(normalised(x), to_qkv[layer]);
      Floats o(x.size());
      const auto part = [&](std::int64_t at) {  // of each token's row
        return ConstTensorView(qkv.data() + at * kWidth, DType::kF32, shape,
                               {3 * kWidth, kChannels, 1});
      };
      const Floats slopes = ops::minimax_slopes(kHeads, std::int64_t(layer), kLayers);
      attention({layer, part(0), part(1), part(2), {slopes.data(), {kHeads}}, {o.data(), shape}});
      x = product(o, to_residual[layer], std::move(x));
    }
    return normalised(x);
  }

  Floats embedding, to_logits;
  std::array<Floats, kLayers> to_qkv, to_residual;
};

// ---- the engine ----

struct Sequence {
  Integers tokens = {};  // the prompt, and what was generated
  std::size_t prompt = 0, length = 0, done = 0;
  std::int32_t from = -1, slot = -1;  // where its next token starts from; its own
  Floats logits = {};                 // of each generated token
};

struct Batch {  // some tokens of each sequence, packed
  std::vector<Sequence*> sequences;
  Integers tokens, bounds{0}, initial, final, snapshots;
  bool has_prompts = false;
};

class Engine {
 public:
  Engine(const Model& model, Context& context) : model_(model) {
    call_.context = &context;
    const Extents shape{std::int64_t{kSlots}, kHeads, kChannels, kChannels};
    for (Tensor& pool : pools_) pool = Tensor(DType::kF32, shape);
    for (std::int32_t slot = 0; slot < std::int32_t{kSlots}; ++slot) free_.push_back(slot);
  }

  std::size_t active() const { return active_.size(); }

  /// From the longest beginning of its prompt that is cached; a token at least is left.
  void admit(Sequence& sequence) {
    for (const auto& [prefix, slot] : cache_) {
      if (prefix.size() >= sequence.prompt || prefix.size() <= sequence.done) continue;
      if (!std::equal(prefix.begin(), prefix.end(), sequence.tokens.begin())) continue;
      sequence.done = prefix.size();
      sequence.from = slot;
    }
    cached_tokens += sequence.done;
    sequence.slot = take_slot();
    active_.push_back(&sequence);
  }

  void step() {
    Batch batch;
    std::int64_t budget = kBudget;
    for (Sequence* const sequence : active_) {
      const auto left = static_cast<std::int64_t>(sequence->tokens.size() - sequence->done);
      const bool decodes = sequence->done >= sequence->prompt;
      std::int64_t count = decodes ? 1 : std::min(left, budget);
      if (count < left) count -= count % kSnapshotEvery;  // the next one's snapshots, too
      if (!decodes) budget -= count;
      if (count > 0) add(*sequence, count, batch);
    }
    const Floats x = run(batch);
    ++(batch.has_prompts ? mixed_steps : decode_steps);
    for (std::size_t n = 0; n < batch.sequences.size(); ++n) finish(batch, n, x);
    std::erase_if(active_, [&](const Sequence* sequence) {
      if (sequence->tokens.size() < sequence->length) return false;
      free_.push_back(sequence->slot);
      return true;
    });
  }

  std::size_t cached_tokens = 0, mixed_steps = 0, decode_steps = 0;
  Clock::duration attention_time{};

 private:
  void add(Sequence& sequence, std::int64_t count, Batch& batch) {
    const auto first = sequence.tokens.begin() + static_cast<std::ptrdiff_t>(sequence.done);
    batch.sequences.push_back(&sequence);
    batch.tokens.insert(batch.tokens.end(), first, first + count);
    batch.bounds.push_back(static_cast<std::int32_t>(batch.tokens.size()));
    batch.initial.push_back(sequence.from);
    batch.final.push_back(sequence.slot);
    batch.snapshots.resize(batch.sequences.size() * kMostSnapshots, -1);
    if (sequence.done >= sequence.prompt) return;
    batch.has_prompts = true;
    auto slot = batch.snapshots.end() - kMostSnapshots;
    for (std::int64_t t = kSnapshotEvery; t <= count; t += kSnapshotEvery) {
      *slot++ = cache_slot({sequence.tokens.begin(), first + t});
    }
  }

  /// A slot for the state behind these tokens; none where it is cached, or nothing is free.
  std::int32_t cache_slot(Integers prefix) {
    for (const auto& [cached, slot] : cache_)
      if (cached == prefix) return -1;
    if (free_.size() <= kActive) {  // the oldest goes, unless somebody starts from it
      const std::int32_t oldest = cache_.front().second;
      for (const Sequence* sequence : active_)
        if (sequence->from == oldest) return -1;
      free_.push_back(oldest);
      cache_.pop_front();
    }
    return cache_.emplace_back(std::move(prefix), take_slot()).second;
  }

  std::int32_t take_slot() {
    const std::int32_t slot = free_.front();
    free_.pop_front();
    return slot;
  }

  Floats run(const Batch& batch) {
    const auto count = static_cast<std::int64_t>(batch.sequences.size());
    const ConstTensorView final(batch.final.data(), {count});
    return model_.run(batch.tokens, [&](const AttentionCall& in) {
      const auto start = Clock::now();
      if (!batch.has_prompts) {
        ops::lightning_decode_into(in.o, in.q, in.k, in.v, pools_[in.layer],
                                   {.slopes = in.slopes, .slot_indices = final, .call = call_});
      } else {
        ops::lightning_attention_into(
            {.o = in.o}, in.q, in.k, in.v,
            {.slopes = in.slopes,
             .cu_seqlens = {{batch.bounds.data(), {count + 1}}},
             .states = pools_[in.layer].view(),
             .initial_slots = {{batch.initial.data(), {count}}},
             .final_slots = final,
             .snapshot_every = kSnapshotEvery,
             .snapshot_slots = {{batch.snapshots.data(), {count, kMostSnapshots}}},
             .call = call_});
      }
      attention_time += Clock::now() - start;
    });
  }

  void finish(const Batch& batch, std::size_t n, const Floats& x) {
    Sequence& sequence = *batch.sequences[n];
    sequence.done += static_cast<std::size_t>(batch.bounds[n + 1] - batch.bounds[n]);
    sequence.from = sequence.slot;
    if (sequence.done < sequence.tokens.size()) return;
    const auto end = x.begin() + batch.bounds[n + 1] * kWidth;
    const Floats logits = product({end - kWidth, end}, model_.to_logits);
    sequence.logits.insert(sequence.logits.end(), logits.begin(), logits.end());
    const auto best = std::max_element(logits.begin(), logits.end()) - logits.begin();
    sequence.tokens.push_back(static_cast<std::int32_t>(best));
  }

  const Model& model_;
  ops::CallOptions call_;
  std::array<Tensor, kLayers> pools_;
  std::list<std::int32_t> free_;
  std::list<std::pair<Integers, std::int32_t>> cache_;  // prefixes and slots, the oldest first
  std::vector<Sequence*> active_;
};

}  // namespace

int main() {
  const auto context = make_context({.policy = Policy::kDb});
  const Model model;
  Engine engine(model, *context);

  // Each prompt is one of three texts of 192 tokens and a question.
  std::mt19937 random(7);
  std::vector<Sequence> all(32);
  for (std::size_t n = 0; n < all.size(); ++n) {
    Integers& tokens = all[n].tokens;
    for (int t = 0; t < 192; ++t) tokens.push_back((t * t + 7 * int(n % 3)) % 251);
    for (auto t = random() % 200; t < 210; ++t) tokens.push_back(int(random() % kVocabulary));
    all[n].prompt = tokens.size();
    all[n].length = tokens.size() + 16 + random() % 32;
  }
  const auto start = Clock::now();
  for (std::size_t step = 0, arrived = 0; arrived < all.size() || engine.active() > 0; ++step) {
    const bool arrives = step % 2 == 0 && arrived < all.size() && engine.active() < kActive;
    if (arrives) engine.admit(all[arrived++]);
    if (engine.active() > 0) engine.step();
  }
  const std::chrono::duration<double> seconds = Clock::now() - start;

  const auto plain = [](const AttentionCall& in) {
    ops::lightning_attention_into({.o = in.o.unsqueeze(0)}, in.q.unsqueeze(0), in.k.unsqueeze(0),
                                  in.v.unsqueeze(0),
                                  {.slopes = in.slopes, .call = {.platform = "reference"}});
  };
  std::size_t prompts = 0, tokens = 0;
  double error = 0;
  for (const Sequence& sequence : all) {
    prompts += sequence.prompt;
    tokens += sequence.tokens.size();
    const Floats x = model.run(sequence.tokens, plain);
    const auto first = x.begin() + std::ptrdiff_t(sequence.prompt - 1) * kWidth;
    const Floats expected = product({first, x.end() - kWidth}, model.to_logits);
    error = std::max(error, relative_rms_error({sequence.logits.begin(), sequence.logits.end()},
                                               {expected.begin(), expected.end()}));
  }
  std::printf("%zu requests: %zu tokens of prompts, %zu of them cached, %zu generated\n",
              all.size(), prompts, engine.cached_tokens, tokens - prompts);
  std::printf("%zu steps with prompts, %zu of decoding alone\n", engine.mixed_steps,
              engine.decode_steps);
  std::printf("%.0f tokens/s, %.0f %% of the time in attention\n", double(tokens) / seconds.count(),
              100 * (engine.attention_time / seconds));
  std::printf("error against one recurrence of each sequence: %.1e\n", error);
  return error < 1e-4 ? 0 : 1;
}
