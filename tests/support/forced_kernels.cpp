#include "support/forced_kernels.hpp"

#include <exception>
#include <memory>

#include "support/kernel_runs.hpp"

namespace attune::test {
namespace {

constexpr int kConfigsEach = 3;

std::vector<Values> now_in(const std::vector<DrawnTensor*>& outputs) {
  std::vector<Values> all;
  for (const DrawnTensor* const t : outputs) all.push_back(t == nullptr ? Values{} : t->outputs());
  return all;
}

bool same_bits(const std::vector<Values>& a, const std::vector<Values>& b) {
  const auto same = [](double x, double y) { return x == y || (std::isnan(x) && std::isnan(y)); };
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (!std::ranges::equal(a[i], b[i], same)) return false;
  }
  return true;
}

void expect_nothing_beside(const DrawnCall& drawn, const std::vector<DrawnTensor*>& outputs) {
  int i = 0;
  for (const DrawnTensor& t : drawn.tensors) {
    const bool is_output = std::ranges::find(outputs, &t) != outputs.end();
    EXPECT_EQ(t.changed(is_output), "") << "tensor " << i++ << (is_output ? ", an output" : "");
  }
}

/// The same call three times, on outputs that are filled differently.
void force(RepeatedCall& call, const Forced& forced, const Device& device) {
  const std::vector<DrawnTensor*> outputs = call.outputs();
  std::vector<Values> first;
  for (const std::byte poison : {std::byte{0xff}, std::byte{0x4b}}) {
    call.restore(poison);
    const Scratch scratch(forced.workspace_bytes, device);
    call.drawn().call.workspace = scratch.span();
    call.run();
    device.synchronize(nullptr);
    if (first.empty()) {
      first = now_in(outputs);
    } else {
      EXPECT_TRUE(same_bits(first, now_in(outputs))) << "run twice, outputs filled differently";
    }
  }
  call.drawn().call.workspace.reset();
  call.restore(std::byte{0x5a});
  call.launch_plan();
  EXPECT_TRUE(same_bits(first, now_in(outputs))) << "launched by a plan";
  expect_nothing_beside(call.drawn(), outputs);
  call.check(first);
}

}  // namespace

std::ostream& operator<<(std::ostream& out, const Forced& forced) {
  return out << forced.kernel->name() << " " << config_text(*forced.kernel, forced.config);
}

Choice ForcingSelector::select(const SelectionKey&, ProblemRef problem, const Request& request) {
  if (next != nullptr) return {.kernel = next->kernel, .config = next->config};
  problem_text = registry_.op(problem.op).text(problem, false);
  found.clear();
  for (const RegisteredKernel* const entry : registry_.kernels(problem.op)) {
    look_at(*entry, problem, *request.device);
  }
  if (found.empty()) throw Unsupported(str("no kernel takes ", problem_text));
  return {.kernel = found[0].kernel, .config = found[0].config};
}

void ForcingSelector::look_at(const RegisteredKernel& entry, ProblemRef problem,
                              const Device& device) {
  const ShortName backend = entry.at.backend;
  if (backend != device.info().id.backend && backend != kAnyBackend) return;
  const KernelOnDevice on{&registry_.op(problem.op), entry.kernel.get(), &device};
  if (!on.kernel->erased_supports(problem, on.info())) return;
  std::vector<ConfigBlob> configs{on.kernel->erased_heuristic(problem, on.info())};
  const std::vector<ConfigBlob> all = configs_of(on, problem);
  for (int i = 0; i < kConfigsEach && !all.empty(); ++i) configs.push_back(draw->one_of(all));
  for (const ConfigBlob& config : configs) {
    found.push_back({on.kernel, config, on.kernel->erased_workspace_bytes(problem, config)});
  }
}

Context& forcing_context() {
  const auto registry = [] {
    Registry made;
    register_all(made);
    return made;
  };
  static Context context(registry(), [](const Registry& known, EventBus&) {
    return std::make_unique<ForcingSelector>(known);
  });
  return context;
}

ForcingSelector& forcing_selector() {
  return dynamic_cast<ForcingSelector&>(forcing_context().selector());
}

Scratch::Scratch(std::size_t bytes, const Device& device) : bytes_(bytes), device_(&device) {
  const std::size_t some = std::max<std::size_t>(bytes, 1);
  memory_ = static_cast<std::byte*>(device.allocate(some, nullptr));
  device.fill(memory_, std::byte{0xff}, some, nullptr);
  device.synchronize(nullptr);
}

void force_each_kernel(RepeatedCall& call, const Device& device) {
  DrawnCall& drawn = call.drawn();
  for (DrawnTensor& t : drawn.tensors) t.place(device);
  drawn.call.context = &forcing_context();
  ForcingSelector& selector = forcing_selector();
  selector.draw = &drawn.draw;
  selector.next = nullptr;
  call.run();
  device.synchronize(nullptr);
  SCOPED_TRACE(selector.problem_text);
  const std::vector<Forced> all = std::move(selector.found);
  for (const Forced& forced : all) {
    SCOPED_TRACE(str(forced));
    selector.next = &forced;
    // Here, where the traces still stand.
    try {
      force(call, forced, device);
    } catch (const std::exception& error) {
      ADD_FAILURE() << error.what();
    }
  }
}

std::string drawn_case_name(const testing::TestParamInfo<DrawnCase>& test) {
  return str(std::get<0>(test.param), "_", std::get<1>(test.param));
}

void DrawnCalls::SetUp() {
  const ShortName backend = std::get<0>(GetParam());
  device_ = forcing_context().registry().find_device({.backend = backend, .index = 0});
  if (device_ == nullptr) GTEST_SKIP() << "needs a GPU";
}

}  // namespace attune::test
