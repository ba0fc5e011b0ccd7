// A context: a frozen registry, a selector and an event bus. Where choices are made for a caller.
#pragma once

#include <memory>
#include <string>

#include <attune/core/events.hpp>
#include <attune/core/registry.hpp>
#include <attune/core/selection.hpp>

namespace attune {

class Context {
 public:
  /// Makes the selector for a context's registry and bus, both of which outlive it.
  using MakeSelector =
      std::function<std::unique_ptr<ConfigSelector>(const Registry& registry, EventBus& events)>;

  Context(Registry registry, const MakeSelector& make_selector);
  ~Context();
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  const Registry& registry() const { return *registry_; }
  ConfigSelector& selector() const { return *selector_; }
  EventBus& events() const { return *events_; }

  /// Selects for a typed problem: a hit in memory takes no lock and allocates nothing.
  template <class Op>
  Choice select(const typename Op::Problem& problem, const Request& request) const {
    const ProblemRef any = ProblemRef::of<Op>(problem);
    const Request here = on_own_device(request);
    const Choice choice = selector_->select(selection_key<Op>(problem, here), any, here);
    if (logs_commands_) log_command(any, choice, here);
    return choice;
  }
  Choice select(ProblemRef problem, const Request& request) const;

  Decision explain(ProblemRef problem, const Request& request) const {
    return selector_->explain(problem, on_own_device(request));
  }
  void forget(ProblemRef problem, const Request& request) const {
    selector_->forget(problem, on_own_device(request));
  }
  Choice retune(ProblemRef problem, const Request& request) const {
    return selector_->retune(problem, on_own_device(request));
  }
  /// The request, for the context's host where it names cpu_device(): a context whose calls keep to
  /// fewer threads has a host of its own.
  Request on_own_device(const Request& request) const {
    Request here = request;
    if (here.device == cpu_device_) here.device = host_;
    return here;
  }
  /// Takes up databases that were replaced or changed by others, from any thread, while others
  /// launch: those neither wait nor take a lock. Plans keep what they hold.
  void reload() const { selector_->reload(); }

 private:
  void log_command(ProblemRef problem, const Choice& choice, const Request& request) const;

  std::unique_ptr<Registry> registry_;
  std::unique_ptr<EventBus> events_;
  std::unique_ptr<ConfigSelector> selector_;
  bool logs_commands_;        // ATTUNE_LOG_CMD
  const Device* cpu_device_;  // cpu_device()
  const Device* host_;        // of the registry
};

/// "attune#recurrent_attention@v3:B=1 T=512 ...", with the version of the kernel: how profilers and
/// logs name a call (NVTX, `ATTUNE_LOG`).
std::string call_label(std::string_view op, const Choice& choice, std::string_view problem);

/// "attune run recurrent_attention B=1 T=512 ... --backend cpu --config kernel=...,tile_v=64": the
/// command that makes the same choice for the same problem, on random inputs.
std::string reproducing_command(const OpInfo& op, const Choice& choice, ProblemRef problem,
                                const DeviceId& device);

}  // namespace attune
