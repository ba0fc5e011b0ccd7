// A context whose kernels compute nothing and count how often they are run, and a second device.
#pragma once

#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <string>

#include <attune/core/context.hpp>
#include <attune/core/kernel.hpp>
#include <attune/ops/recurrent_attention_op.hpp>
#include <attune/ops/recurrent_decode_op.hpp>
#include <attune/ops/register.hpp>

namespace attune::test {

/// What reached the selector and the kernels.
struct Spy {
  int selected = 0;
  int runs = 0;
  std::string problem;    // of the last selection
  std::string called_as;  // by the last selection
};

template <class O>
struct SpyConfig {
  using Op = O;
  int unroll = 1;
  friend constexpr bool operator==(const SpyConfig&, const SpyConfig&) = default;
  static constexpr auto axes() {
    return std::tuple{launch_axis("unroll", &SpyConfig::unroll, {1, 2})};
  }
};

template <class Op>
class SpyKernel final : public Kernel<SpyConfig<Op>> {
 public:
  explicit SpyKernel(Spy* spy) : spy_(spy) {}
  std::string_view name() const noexcept override { return name_; }
  int version() const noexcept override { return 1; }
  Support supports(const typename Op::Problem&, const DeviceInfo&) const override {
    return Support::yes();
  }
  SpyConfig<Op> heuristic_config(const typename Op::Problem&, const DeviceInfo&) const override {
    return {};
  }
  void run(const typename Op::Problem&, const typename Op::Args&, const SpyConfig<Op>&,
           const LaunchSite&) const override {
    ++spy_->runs;
  }

 private:
  Spy* spy_;
  std::string name_ = str("spy.", Op::kName);
};

/// Takes the first kernel there is.
class SpySelector final : public ConfigSelector {
 public:
  SpySelector(const Registry& registry, Spy* spy) : registry_(registry), spy_(spy) {}

  Choice select(const SelectionKey&, ProblemRef problem, const Request& request) override {
    ++spy_->selected;
    spy_->problem = registry_.op(problem.op).text(problem, false);
    spy_->called_as = std::string(request.called_as);
    const ErasedKernel& kernel = *registry_.kernels(problem.op).front()->kernel;
    if (request.config != nullptr) return {&kernel, kernel.parse(request.config->params)};
    return {&kernel, kernel.erased_heuristic(problem, request.device->info())};
  }
  Decision explain(ProblemRef, const Request&) override { return {}; }
  void forget(ProblemRef, const Request&) override {}
  Choice retune(ProblemRef problem, const Request& request) override {
    return select({}, problem, request);
  }

 private:
  const Registry& registry_;
  Spy* spy_;
};

/// Memory of its own, "gpu:0" or another backend's, that happens to be the host's.
class OtherDevice final : public Device {
 public:
  explicit OtherDevice(const ShortName& backend = "gpu") { info_.id = {backend, 0}; }
  const DeviceInfo& info() const noexcept override { return info_; }
  void* allocate(std::size_t bytes, void*) const override {
    void* const memory = std::aligned_alloc(64, (bytes + 63) / 64 * 64);
    if (memory == nullptr) throw std::bad_alloc();
    return memory;
  }
  void deallocate(void* pointer, void*) const noexcept override { std::free(pointer); }
  void copy_to_device(void* to, const void* from, std::size_t bytes, void*) const override {
    std::memcpy(to, from, bytes);
  }
  void copy_to_host(void* to, const void* from, std::size_t bytes, void*) const override {
    std::memcpy(to, from, bytes);
  }
  void fill(void* to, std::byte value, std::size_t bytes, void*) const override {
    std::memset(to, std::to_integer<int>(value), bytes);
  }
  void synchronize(void*) const override {}
  double time_us(FunctionRef<void(void*, int)>, int) const override { return 1; }

 private:
  DeviceInfo info_;
};

/// All ops of attune with one spy kernel each, on the host and on "gpu:0".
class SpyContext {
 public:
  SpyContext()
      : context_(registry(), [this](const Registry& registry, EventBus&) {
          return std::make_unique<SpySelector>(registry, &spy);
        }) {}
  Context& context() { return context_; }

  Spy spy;

 private:
  Registry registry() {
    Registry made;
    ops::register_ops(made);
    made.add(std::make_unique<SpyKernel<ops::RecurrentAttention>>(&spy), {.platform = "spy"});
    made.add(std::make_unique<SpyKernel<ops::RecurrentAttentionBackward>>(&spy),
             {.platform = "spy"});
    made.add(std::make_unique<SpyKernel<ops::RecurrentDecode>>(&spy), {.platform = "spy"});
    made.add(std::make_unique<OtherDevice>());
    return made;
  }

  Context context_;
};

}  // namespace attune::test
