#include <attune/core/executor.hpp>

namespace attune {

Choice Executor::run(const Case& on, const Request& request) const {
  const Choice choice = context_->select(on.problem(), request);
  run_choice(on.problem(), on.args(), choice, *request.device, request.stream);
  return choice;
}

void Executor::run_choice(ProblemRef problem, const void* args, const Choice& choice,
                          const Device& device, void* stream) {
  const std::size_t bytes = choice.kernel->erased_workspace_bytes(problem, choice.config);
  if (bytes == 0) {
    choice.kernel->erased_run(problem, args, choice.config, {stream, {}});
    return;
  }
  const auto release = [&](std::byte* pointer) { device.deallocate(pointer, stream); };
  const std::unique_ptr<std::byte, decltype(release)> workspace(
      static_cast<std::byte*>(device.allocate(bytes, stream)), release);
  choice.kernel->erased_run(problem, args, choice.config, {stream, {workspace.get(), bytes}});
}

}  // namespace attune
