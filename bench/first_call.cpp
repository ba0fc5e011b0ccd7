// How long a new process waits for its first result.
//
//   ATTUNE_DB=tuned.db first_call OP "SPEC"
//
// The device is already in use when the clock starts, as it is where tensors exist to be computed
// on: what is measured is attune's own start (registry, databases, loading the kernel) and one
// call.
#include <chrono>
#include <cstdio>

#include <attune/attune.hpp>
#include <attune/core/params.hpp>

namespace {

using namespace attune;
using Clock = std::chrono::steady_clock;

double milliseconds(Clock::duration duration) {
  return std::chrono::duration<double, std::milli>(duration).count();
}

void measure(const char* op_name, const char* text) {
  Registry probe;
  register_all(probe);
  const Device& used = *probe.devices().back();  // the host is the first
  const Tensor warm(DType::kF32, {1}, used);
  used.synchronize(nullptr);

  const Clock::time_point start = Clock::now();
  const auto context = make_context({.policy = Policy::kDb});
  const Clock::time_point made = Clock::now();
  const Device& device = context->registry().device(used.info().id);
  const OpInfo& op = context->registry().op(op_name);
  const AnyProblem problem = op.parse(parse_params(text, ' '));
  const auto inputs = op.make_case(problem, device, 1);
  device.synchronize(nullptr);

  const Clock::time_point called = Clock::now();
  const Choice choice = Executor(*context).run(*inputs, {.device = &device});
  device.synchronize(nullptr);
  const Clock::time_point done = Clock::now();
  std::printf("context %.1f ms, first call %.1f ms (%s, from %s), tunings %llu\n",
              milliseconds(made - start), milliseconds(done - called),
              std::string(choice.kernel->name()).c_str(),
              std::string(to_string(choice.tier)).c_str(),
              static_cast<unsigned long long>(chain_of(*context).counters().tunings));
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "usage: first_call OP \"SPEC\"\n");
    return 2;
  }
  try {
    measure(argv[1], argv[2]);
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "first_call: %s\n", error.what());
    return 5;
  }
}
