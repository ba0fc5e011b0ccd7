// What is to be done when the process ends, for objects that may live until then and are not
// destroyed: those of the default context.
#pragma once

#include <functional>

namespace attune::telemetry {

class ExitHook {
 public:
  /// `at_exit` is called once when the process ends by exit() or from main(), in forked children
  /// too. It must not make or destroy hooks.
  explicit ExitHook(std::function<void()> at_exit);
  /// Waits for a call in progress; there is none afterwards.
  ~ExitHook();
  ExitHook(const ExitHook&) = delete;
  ExitHook& operator=(const ExitHook&) = delete;

 private:
  friend struct LiveHooks;
  std::function<void()> at_exit_;
};

}  // namespace attune::telemetry
