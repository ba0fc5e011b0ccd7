// A serving engine: continuous batching on a pool of states, with speculative decoding and a cache
// of prefixes, on a GPU where there is one.
//
// Requests arrive while others are served (engine.hpp). In the end each sequence's logits are held
// against one plain recurrence over all of its tokens.
//
//   05_serve                        random weights
//   05_serve --save FILE            writes them as a safetensors file
//   05_serve FILE                   serves what is in such a file
#include <cstdio>
#include <exception>
#include <random>
#include <string_view>

#include "engine.hpp"

namespace serve {
namespace {

/// Each prompt is one of three texts of 192 tokens and a part of it again, to be gone on with.
std::vector<Sequence> requests() {
  std::mt19937 random(7);
  std::vector<Sequence> all(32);
  for (size_t n = 0; n < all.size(); ++n) {
    Integers& tokens = all[n].tokens;
    for (size_t t = 0; t < 192; ++t) tokens.push_back(std::int32_t((t * t + 7 * (n % 3)) % 251));
    const size_t first = random() % 100, question = 4 + random() % 60;
    for (size_t t = 0; t < question; ++t) tokens.push_back(tokens[first + t]);
    all[n].prompt = tokens.size();
    all[n].length = tokens.size() + 16 + random() % 32;
  }
  return all;
}

int run(const Model& model) {
  const auto context = make_context({.policy = Policy::kDb});
  const Device* const gpu = context->registry().find_device({.backend = "gpu", .index = 0});
  const Device& device = gpu != nullptr ? *gpu : cpu_device();
  Engine engine(model, *context, device);
  std::vector<Sequence> all = requests();
  const auto start = Clock::now();
  for (size_t step = 0, arrived = 0; arrived < all.size() || engine.active() > 0; ++step) {
    const bool arrives = step % 2 == 0 && arrived < all.size() && engine.active() < kActive;
    if (arrives) engine.admit(all[arrived++]);
    if (engine.active() > 0) engine.step();
  }
  const std::chrono::duration<double> seconds = Clock::now() - start;

  size_t prompts = 0, tokens = 0;
  double error = 0;
  for (const Sequence& sequence : all) {
    prompts += sequence.prompt;
    tokens += sequence.tokens.size();
    const Floats expected = model.plain_logits(sequence.tokens, sequence.prompt - 1);
    error = std::max(error, relative_rms_error({sequence.logits.begin(), sequence.logits.end()},
                                               {expected.begin(), expected.end()}));
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
}  // namespace serve

int main(int count, char** arguments) {
  try {
    if (count == 3 && std::string_view(arguments[1]) == "--save") {
      attune::io::write_safetensors(arguments[2], serve::Model().weights);
      return 0;
    }
    return serve::run(serve::Model(count > 1 ? arguments[1] : ""));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
