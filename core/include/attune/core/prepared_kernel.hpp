// Kernels that make something before they can run: a module compiled at run time, a table, a
// descriptor of hardware. An author derives from PreparedKernel<Config, Product> in place of
// Kernel<Config>, and says how a Product is made and how a launch uses it:
//
//   class Compiled final : public PreparedKernel<TilesConfig, Module> {
//     std::shared_ptr<const Module> prepare(const Problem& p, const TilesConfig& config,
//                                           const PrepareSite& site) const override;
//     void run_with(const Module&, const Problem&, const Args&, const TilesConfig&,
//                   const LaunchSite&) const override;
//   };
//
// A product is made once for a device and a prepare_key(), when a choice is made and not when it is
// launched: before a Plan is there, before a call's first launch, before a tuner times anything. It
// lives as long as the kernel. What is slow to make, as a compiler's output, is also kept on disk:
// `site.artifacts` finds what another process has kept under the same key.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <attune/core/device.hpp>
#include <attune/core/kernel.hpp>

namespace attune {

/// What prepare() made, without its type.
class Prepared {
 public:
  virtual ~Prepared() = default;
};

/// Bytes that processes keep for each other. The key is a text that says all that the bytes depend
/// on: the source, the compiler's options and version, the architecture. Never throws: what cannot
/// be read is not there, and what cannot be written is not kept.
class Artifacts {
 public:
  virtual ~Artifacts() = default;
  virtual std::optional<std::string> find(std::string_view key) const = 0;
  virtual void keep(std::string_view key, std::string_view bytes) const = 0;
};

/// Keeps nothing.
const Artifacts& no_artifacts();

/// Where something is prepared.
struct PrepareSite {
  const Device& device;
  const Artifacts& artifacts;
};

/// What a kernel has prepared, by key. Any number of threads may ask at once: one makes a product,
/// and those that want the same wait for it.
class PreparedStore {
 public:
  using Make = FunctionRef<std::shared_ptr<const Prepared>()>;

  /// The product under `key`, which `make` makes if it is not there. What `make` throws is thrown,
  /// and nothing remembered.
  const Prepared* get(const std::string& key, Make make);
  /// Null if it has not been made.
  const Prepared* find(const std::string& key) const;

 private:
  struct Slot {
    std::mutex making;
    std::shared_ptr<const Prepared> product;  // under the mutex of the store
  };
  mutable std::mutex mutex_;
  std::map<std::string, std::unique_ptr<Slot>> slots_;
};

/// The class an author derives from. `Product` is what run() is given: any type.
template <class Config, class Product>
class PreparedKernel : public Kernel<Config> {
 public:
  using typename Kernel<Config>::Op;
  using typename Kernel<Config>::Problem;
  using typename Kernel<Config>::Args;

  /// Makes what run() needs. May take seconds, and is called from several threads at once, each
  /// with another key. Throws what says why it cannot: a tuner counts that as the config's failure.
  virtual std::shared_ptr<const Product> prepare(const Problem& problem, const Config& config,
                                                 const PrepareSite& site) const = 0;

  /// All that prepare() looks at besides the device. By default problem and config; a kernel that
  /// compiles the same code for every size leaves the sizes out.
  virtual std::string prepare_key(const Problem& problem, const Config& config) const {
    return problem_text<Op>(problem) + ' ' + to_text(to_params(config));
  }

  /// As Kernel::run(), with what prepare() made for the problem and config.
  virtual void run_with(const Product&, const Problem&, const Args&, const Config&,
                        const LaunchSite&) const = 0;

  bool prepares() const noexcept final { return true; }

  const Prepared* erased_prepare(ProblemRef problem, const ConfigBlob& blob,
                                 const PrepareSite& site) const final {
    const Config config = Kernel<Config>::unpack(blob);
    const auto make = [&]() -> std::shared_ptr<const Prepared> {
      return std::make_shared<const Holder>(prepare(problem.as<Op>(), config, site));
    };
    return products_.get(key_of(problem, config, site.device), make);
  }
  const Prepared* erased_find_prepared(ProblemRef problem, const ConfigBlob& blob,
                                       const Device& device) const final {
    return products_.find(key_of(problem, Kernel<Config>::unpack(blob), device));
  }

 private:
  struct Holder final : Prepared {
    explicit Holder(std::shared_ptr<const Product> held) : product(std::move(held)) {}
    std::shared_ptr<const Product> product;
  };

  std::string key_of(ProblemRef problem, const Config& config, const Device& device) const {
    return str(device.info().id, ' ', prepare_key(problem.as<Op>(), config));
  }

  void run(const Problem& problem, const Args& args, const Config& config,
           const LaunchSite& site) const final {
    if (site.prepared == nullptr) this->throw_not_prepared();
    run_with(*static_cast<const Holder*>(site.prepared)->product, problem, args, config, site);
  }

  mutable PreparedStore products_;
};

}  // namespace attune
