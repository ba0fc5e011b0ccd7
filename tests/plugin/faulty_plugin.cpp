// A plugin that does what FAULTY_PLUGIN names instead of registering something.
#include <cstdlib>
#include <memory>
#include <stdexcept>
#include <string_view>

#include <attune/core/kernel.hpp>
#include <attune/core/plugin.hpp>
#include <attune/ops/recurrent_decode_op.hpp>

namespace {

std::string_view fault() {
  const char* const name = std::getenv("FAULTY_PLUGIN");
  return name == nullptr ? "" : name;
}

struct NotAnException {};

struct UnknownOp {
  static constexpr std::string_view kName = "no_such_op";
  using Problem = attune::ops::RecurrentDecodeProblem;
  using Args = attune::ops::RecurrentDecodeArgs;
};

struct Config {
  using Op = UnknownOp;
  int unused = 1;
  friend constexpr bool operator==(const Config&, const Config&) = default;
  static constexpr auto axes() {
    return std::tuple{attune::launch_axis("unused", &Config::unused, {1})};
  }
};

class StrayKernel final : public attune::Kernel<Config> {
 public:
  std::string_view name() const noexcept override { return "stray"; }
  int version() const noexcept override { return 1; }
  attune::Support supports(const Problem&, const attune::DeviceInfo&) const override {
    return attune::Support::yes();
  }
  Config heuristic_config(const Problem&, const attune::DeviceInfo&) const override { return {}; }
  void run(const Problem&, const Args&, const Config&, const attune::LaunchSite&) const override {}
};

}  // namespace

extern "C" const char* attune_plugin_abi() {
  if (fault() == "null_abi") return nullptr;
  if (fault() == "other_abi") return "attune 0.0.0 gxx-abi 1 cxx11-abi 1";
  if (fault() == "older_interface") return "attune plugin interface 2 gxx-abi 1 cxx11-abi 1";
  if (fault() == "abi_throws") throw 7;
  return attune::kPluginAbi;
}

extern "C" void attune_register(attune::Registry& registry) {
  const attune::Placement at{.platform = "faulty", .backend = "cpu", .priority = 1};
  // A registry is not to be touched by a plugin of another attune.
  if (attune_plugin_abi() != attune::kPluginAbi) std::abort();
  if (fault() == "throws_int") throw 42;
  if (fault() == "throws_type") throw NotAnException();
  if (fault() == "throws_exception") throw std::runtime_error("no licence found");
  if (fault() == "kernel_of_unknown_op") registry.add(std::make_unique<StrayKernel>(), at);
  if (fault() == "null_kernel") registry.add(std::unique_ptr<const attune::ErasedKernel>(), at);
  if (fault() == "null_device") registry.add(std::unique_ptr<const attune::Device>());
  if (fault() == "op_twice") registry.add(registry.op("recurrent_decode"));
}
