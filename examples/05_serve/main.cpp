// A small serving engine, on a GPU where there is one: continuous batching on a pool of states,
// prompts in chunks, a cache of prefixes, and speculative decoding. In the end each sequence's
// outputs are held against one plain recurrence over all of its tokens.
//
//   05_serve                        random weights
//   05_serve --save FILE            writes them as a safetensors file
//   05_serve FILE                   serves what is in such a file
//
// The model is one layer of lightning attention that remembers what came after what. Each token
// writes its value under the key of the token before it and reads under its own: an induction head.
// It needs no training, only keys and values that differ.
#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <exception>
#include <map>
#include <numeric>
#include <random>
#include <stdexcept>
#include <string_view>
#include <utility>
#include <vector>

#include <attune/attune.hpp>
#include <attune/io/safetensors.hpp>

#ifdef SERVE_WITH_CUDA
#include <cuda_runtime_api.h>
#endif

namespace {

using namespace attune;
using std::int32_t, std::int64_t, std::size_t;
using Clock = std::chrono::steady_clock;
using Floats = std::vector<float>;
using Integers = std::vector<int32_t>;

constexpr int64_t kHeads = 4, kChannels = 64, kVocabulary = 256;
constexpr int64_t kLayer = 31, kLayers = 32;  // whose decay the heads have
constexpr size_t kWidth = kHeads * kChannels, kBudget = 256, kSnapshotEvery = 64;
constexpr size_t kPlaces = 12, kStep = 4;  // sequences served at once, tokens of each when decoding
constexpr size_t kSlots = 96;              // of states; kStep for each place, the others cached

io::TensorFile random_weights() {
  io::TensorFile file;
  Tensor& weights = file.tensors["weights"] = Tensor(DType::kF32, {2, kVocabulary, kWidth});
  std::mt19937 random(5);
  std::normal_distribution<float> normal(0, 0.125F);
  std::ranges::generate(weights.values<float>(), [&] { return normal(random); });
  return file;
}

struct Model {
  Tensor weights;  // f32 [2, vocabulary, width]: keys, and values

  const float* key(int32_t token) const {
    return weights.values<float>().data() + size_t(token) * kWidth;
  }
  const float* value(int32_t token) const { return key(int32_t{kVocabulary} + token); }

  /// Puts q, k and v of token `at` behind `rows`, [tokens, 3 * heads, channels].
  void append(const Integers& tokens, size_t at, Floats& rows) const {
    const int32_t before = tokens[at == 0 ? 0 : at - 1];
    for (const float* row : {key(tokens[at]), key(before), value(tokens[at])}) {
      rows.insert(rows.end(), row, row + kWidth);
    }
  }

  /// What follows the token whose row of the layer's output this is.
  int32_t next(const float* o) const {
    std::array<float, kVocabulary> logits{};
    for (int32_t token = 0; token < kVocabulary; ++token) {
      logits[size_t(token)] = std::transform_reduce(o, o + kWidth, value(token), 0.0F);
    }
    return int32_t(std::ranges::max_element(logits) - logits.begin());
  }
};

/// q, k or v: part 0, 1 or 2 of rows [batch, tokens, 3 * heads, channels].
TensorView part(const TensorView& rows, int64_t number) {
  return rows.slice(2, number * kHeads, (number + 1) * kHeads);
}

struct Sequence {
  Integers tokens = {};  // the prompt, and what was generated
  size_t prompt = 0, length = 0;
  size_t taken = 0;     // tokens that its state has
  int32_t from = -1;    // the slot where its state is
  Floats outputs = {};  // of the layer, for each generated token
};

/// While any sequence has tokens of its prompt left, a step is one packed call; the others decode
/// speculatively.
class Engine {
 public:
  Engine(const Model& model, Context& context, const Device& device)
      : model_(model), device_(device), call_{.context = &context} {}

  /// The sequence starts from the longest beginning of its prompt that is cached; a token at least
  /// is left. False where no place is free.
  bool admit(Sequence& sequence) {
    const auto place = std::ranges::find(places_, nullptr);
    if (place == places_.end()) return false;
    *place = &sequence;
    for (size_t count = kSnapshotEvery; count < sequence.prompt; count += kSnapshotEvery) {
      if (const auto found = cache_.find(beginning(sequence, count)); found != cache_.end()) {
        sequence.taken = count;
        sequence.from = found->second;
      }
    }
    cached_tokens += sequence.taken;
    return true;
  }

  /// False where there was nothing to do.
  bool step() {
    const auto has_prompt = [](const Sequence* s) { return s && s->taken < s->prompt; };
    if (std::ranges::count(places_, nullptr) == kPlaces) return false;
    std::ranges::any_of(places_, has_prompt) ? run_packed() : decode();
    for (Sequence*& s : places_) {
      if (s && s->tokens.size() == s->length) s = nullptr;
    }
    return true;
  }

  size_t cached_tokens = 0, packed_steps = 0, decode_steps = 0, drafts = 0, right_drafts = 0;
  Clock::duration in_attention{}, in_logits{};

 private:
  /// One packed call: prompts in chunks, up to a budget of tokens, and a token of each sequence
  /// that decodes. The states behind every 64 tokens of a prompt go to slots of the cache. A
  /// sequence that starts from one of them ends in a slot of its own place: copy on write.
  void run_packed() {
    const auto start = Clock::now();
    Floats rows;
    Integers bounds{0}, from, to, kept;
    size_t budget = kBudget;
    for (size_t n = 0; n < kPlaces; ++n) {
      Sequence* const s = places_[n];
      size_t count = s ? s->tokens.size() - s->taken : 0;
      if (s && s->taken < s->prompt) {
        if (count > budget) count = budget / kSnapshotEvery * kSnapshotEvery;
        budget -= count;
      }
      for (size_t end = kSnapshotEvery; end <= kBudget; end += kSnapshotEvery) {
        kept.push_back(end <= count ? slot_to_keep(beginning(*s, s->taken + end)) : -1);
      }
      to.push_back(int32_t(n * kStep));
      from.push_back(s ? std::exchange(s->from, to.back()) : -1);
      for (; count > 0; --count) model_.append(s->tokens, s->taken++, rows);
      bounds.push_back(int32_t(rows.size() / (3 * kWidth)));
    }
    Tensor in = put(rows, {1, bounds.back(), 3 * kHeads, kChannels});
    const auto result = ops::lightning_attention(
        part(in, 0), part(in, 1), part(in, 2),
        {.layer_idx = kLayer,
         .num_layers = kLayers,
         .cu_seqlens = put(bounds, {kPlaces + 1}).view(),
         .states = pool_.view(),
         .initial_slots = put(from, {kPlaces}).view(),
         .final_slots = put(to, {kPlaces}).view(),
         .snapshot_every = kSnapshotEvery,
         .snapshot_slots = put(kept, {kPlaces, kBudget / kSnapshotEvery}).view(),
         .call = call_});
    const Floats o = get(result.o);
    in_attention += Clock::now() - start;
    ++packed_steps;
    for (size_t n = 0; n < kPlaces; ++n) {
      Sequence* const s = places_[n];
      if (s && s->taken == s->tokens.size()) {
        generate(n, {}, &o[size_t(bounds[n + 1] - 1) * kWidth]);
      }
    }
  }

  static Integers beginning(const Sequence& sequence, size_t count) {
    return {sequence.tokens.begin(), sequence.tokens.begin() + int64_t(count)};
  }
  static Integers slots_of_places() {
    Integers slots(kPlaces * kStep);
    std::iota(slots.begin(), slots.end(), 0);
    return slots;
  }
  /// For the state behind these tokens; -1 where it is kept already, or no slot is free.
  int32_t slot_to_keep(const Integers& tokens) {
    const auto slot = int32_t(kPlaces * kStep + cache_.size());
    return slot < int32_t{kSlots} && cache_.emplace(tokens, slot).second ? slot : -1;
  }

  /// A token of each sequence that is certain, and drafts. The state behind each of them goes to a
  /// slot of its own, and the next step starts from the one behind the last that was right.
  void decode() {
    const auto start = Clock::now();
    std::array<Integers, kPlaces> drafted;
    Integers accepted(kPlaces, -1);  // -1: padding
    Floats rows;
    for (size_t n = 0; n < kPlaces; ++n) {
      if (const Sequence* const s = places_[n]) {
        drafted[n] = with_drafts(s->tokens);
        accepted[n] = s->from - int32_t(n * kStep) + 1;
        for (size_t t = s->taken; t < drafted[n].size(); ++t) model_.append(drafted[n], t, rows);
        drafts += kStep - 1;
      }
      rows.resize((n + 1) * kStep * 3 * kWidth);
    }
    copy(rows, in_);
    copy(accepted, accepted_);
    launch_decode();
    const Floats o = get(o_);
    in_attention += Clock::now() - start;
    ++decode_steps;
    for (size_t n = 0; n < kPlaces; ++n) {
      if (places_[n]) right_drafts += generate(n, drafted[n], &o[n * kStep * kWidth]) - 1;
    }
  }

  /// `tokens`, and what came after the last two tokens when they last stood together.
  static Integers with_drafts(Integers tokens) {
    const auto none = tokens.end() - 1;
    const auto found = std::find_end(tokens.begin(), none, tokens.end() - 2, tokens.end());
    size_t from = size_t(found - tokens.begin()) + (found == none ? 0 : 2);
    for (size_t i = 1; i < kStep; ++i) tokens.push_back(tokens[from++]);
    return tokens;
  }

  /// Takes the token that the model says next, and the one after that if the drafted one was right,
  /// and so on. Returns how many.
  size_t generate(size_t place, const Integers& drafted, const float* o) {
    const auto start = Clock::now();
    Sequence& s = *places_[place];
    const size_t before = s.tokens.size();
    do {
      s.from = int32_t(place * kStep + s.tokens.size() - before);
      s.taken = s.tokens.size();
      s.outputs.insert(s.outputs.end(), o, o + kWidth);
      s.tokens.push_back(model_.next(o));
      o += kWidth;
    } while (s.tokens.size() < s.length && s.tokens.size() <= drafted.size() &&
             s.tokens.back() == drafted[s.taken]);
    in_logits += Clock::now() - start;
    return s.tokens.size() - before;
  }

  /// The same on the same memory each time: on a GPU a CUDA graph, which is recorded once. The rest
  /// goes to the default stream, and so do its replays.
  void launch_decode() {
    const auto launch = [this](void* stream) {
      auto* const workspace = static_cast<std::byte*>(workspace_.view().data);
      plan_.launch(arguments_, stream, {workspace, plan_.workspace_bytes()});
    };
#ifdef SERVE_WITH_CUDA
    const auto check = [](cudaError_t status) {
      if (status != cudaSuccess) throw std::runtime_error(cudaGetErrorString(status));
    };
    if (device_.info().id == DeviceId{}) return launch(nullptr);
    if (graph_ == nullptr) {
      cudaStream_t stream = nullptr;
      cudaGraph_t recorded = nullptr;
      check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
      check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
      launch(stream);
      check(cudaStreamEndCapture(stream, &recorded));
      check(cudaGraphInstantiate(&graph_, recorded, 0));
      check(cudaGraphDestroy(recorded));
      check(cudaStreamDestroy(stream));
    }
    check(cudaGraphLaunch(graph_, nullptr));
  }
  cudaGraphExec_t graph_ = nullptr;  // until the program ends
#else
    launch(nullptr);
  }
#endif

  template <class T>
  void copy(const std::vector<T>& from, Tensor& to) const {
    device_.copy_to_device(to.view().data, from.data(), to.bytes(), nullptr);
  }
  template <class T>
  Tensor put(const std::vector<T>& values, const Extents& shape) const {
    Tensor there(kDTypeOf<T>, shape, device_);
    copy(values, there);
    return there;
  }
  Floats get(const Tensor& from) const {
    Floats values(from.bytes() / sizeof(float));
    device_.copy_to_host(values.data(), from.view().data, from.bytes(), nullptr);
    return values;
  }

  const Model& model_;
  const Device& device_;
  ops::CallOptions call_;
  std::array<Sequence*, kPlaces> places_{};
  std::map<Integers, int32_t> cache_;  // beginnings of prompts, and the slots of their states
  Tensor pool_{DType::kF32, {kSlots, kHeads, kChannels, kChannels}, device_};
  // What every step of decoding works on:
  Tensor in_{DType::kF32, {kPlaces, kStep, 3 * kHeads, kChannels}, device_};
  Tensor o_{DType::kF32, {kPlaces, kStep, kHeads, kChannels}, device_};
  Tensor accepted_ = put(Integers(kPlaces, -1), {kPlaces});
  Tensor kept_ = put(slots_of_places(), {kPlaces, kStep});
  ops::LightningDecodeOptions options_{.layer_idx = kLayer,
                                       .num_layers = kLayers,
                                       .kept_slots = kept_.view(),
                                       .accepted = accepted_.view(),
                                       .call = call_};
  Plan<ops::RecurrentDecode> plan_ =
      ops::plan_lightning_decode(part(in_, 0), part(in_, 1), part(in_, 2), pool_, options_);
  ops::RecurrentDecodeArgs arguments_ =
      ops::lightning_decode_args(o_, part(in_, 0), part(in_, 1), part(in_, 2), pool_, options_);
  Tensor workspace_{DType::kF32, {int64_t(plan_.workspace_bytes() / 4 + 1)}, device_};
};

/// Each prompt is one of three texts of 192 tokens and a part of it again, to be gone on with.
std::vector<Sequence> requests() {
  std::mt19937 random(7);
  std::vector<Sequence> all(32);
  for (size_t n = 0; n < all.size(); ++n) {
    Integers& tokens = all[n].tokens;
    for (size_t t = 0; t < 192; ++t) tokens.push_back(int32_t((t * t + 7 * (n % 3)) % 251));
    const size_t first = random() % 100, question = 4 + random() % 60;
    for (size_t t = 0; t < question; ++t) tokens.push_back(tokens[first + t]);
    all[n].prompt = tokens.size();
    all[n].length = tokens.size() + 16 + random() % 32;
  }
  return all;
}

/// Of a sequence's outputs, against one plain recurrence over all of its tokens.
double error_of(const Sequence& s, const Model& model) {
  Floats rows;
  for (size_t t = 0; t < s.tokens.size(); ++t) model.append(s.tokens, t, rows);
  const TensorView in(rows.data(), {1, int64_t(s.tokens.size()), 3 * kHeads, kChannels});
  const auto result = ops::lightning_attention(
      part(in, 0), part(in, 1), part(in, 2),
      {.layer_idx = kLayer, .num_layers = kLayers, .call = {.platform = "reference"}});
  const float* const o = result.o.values<float>().data();
  return relative_rms_error({s.outputs.begin(), s.outputs.end()},
                            {o + (s.prompt - 1) * kWidth, o + (s.tokens.size() - 1) * kWidth});
}

int run(const Model& model) {
  const auto context = make_context({.policy = Policy::kDb});
  const Device* const gpu = context->registry().find_device({.backend = "gpu", .index = 0});
  const Device& device = gpu ? *gpu : cpu_device();
  Engine engine(model, *context, device);
  std::vector<Sequence> all = requests();
  const auto start = Clock::now();
  size_t arrived = 0, steps = 0, prompts = 0, tokens = 0;
  do {
    if (steps++ % 2 == 0 && arrived < all.size() && engine.admit(all[arrived])) ++arrived;
  } while (engine.step() || arrived < all.size());
  const std::chrono::duration<double> seconds = Clock::now() - start;
  double error = 0;
  for (const Sequence& sequence : all) {
    prompts += sequence.prompt;
    tokens += sequence.tokens.size();
    error = std::max(error, error_of(sequence, model));
  }
  std::printf("%zu requests on %s: %zu tokens of prompts, %zu of them cached, %zu generated\n",
              all.size(), device.info().name.c_str(), prompts, engine.cached_tokens,
              tokens - prompts);
  std::printf("%zu steps with prompts, %zu of decoding alone; %zu of %zu drafts were right\n",
              engine.packed_steps, engine.decode_steps, engine.right_drafts, engine.drafts);
  std::printf("%.0f tokens/s, %.0f %% of the time in attention, %.0f %% in logits\n",
              double(tokens) / seconds.count(), 100 * (engine.in_attention / seconds),
              100 * (engine.in_logits / seconds));
  std::printf("error against one recurrence of each sequence: %.1e\n", error);
  return error < 1e-4 ? 0 : 1;
}

}  // namespace

int main(int count, char** arguments) try {
  if (count == 3 && std::string_view(arguments[1]) == "--save") {
    io::write_safetensors(arguments[2], random_weights());
    return 0;
  }
  auto file = count > 1 ? io::read_safetensors(arguments[1]) : random_weights();
  Tensor& weights = file.tensors["weights"];
  if (weights.dtype() != DType::kF32 || weights.shape() != Extents{2, kVocabulary, kWidth}) {
    throw InvalidArgument(str(arguments[1], ": expected weights, f32 [2, 256, 256]"));
  }
  return run({std::move(weights)});
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
