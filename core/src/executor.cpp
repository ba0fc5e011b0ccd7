#include <exception>
#include <string>

#include <attune/core/error.hpp>
#include <attune/core/executor.hpp>
#include <attune/core/profiler.hpp>

namespace attune {
namespace {

/// InvalidArgument is the caller's to mend, and no fault of the kernel or the device.
void tell_of_failure(Context& context, ProblemRef problem, const Choice& choice,
                     const Request& request, const std::exception& error) {
  if (!context.events().active() || dynamic_cast<const InvalidArgument*>(&error) != nullptr) return;
  const std::string text = context.registry().op(problem.op).text(problem, false);
  const std::string config = config_text(*choice.kernel, choice.config);
  Event event;
  event.kind = EventKind::kLaunchFailed;
  event.op = request.called_as.empty() ? problem.op : request.called_as;
  event.problem = text;
  event.device_class = request.device->info().device_class;
  event.kernel = choice.kernel->name();
  event.version = choice.kernel->version();
  event.config = config;
  event.tier = choice.tier;
  event.reason = error.what();
  event.fault = true;
  context.events().emit(event);
}

}  // namespace

void Executor::run_selected(ProblemRef problem, const void* args, const Choice& choice,
                            const Request& request) const {
  const ProfilerRange range(ProfilerRanges::kLaunches, [&] {
    return call_label(problem.op, choice, context_->registry().op(problem.op).text(problem, false));
  });
  try {
    run_choice(problem, args, choice, *request.device, request.stream);
  } catch (const std::exception& error) {
    tell_of_failure(*context_, problem, choice, request, error);
    throw;
  }
}

Choice Executor::run(const Case& on, const Request& request) const {
  const Choice choice = context_->select(on.problem(), request);
  run_selected(on.problem(), on.args(), choice, request);
  return choice;
}

void Executor::run_choice(ProblemRef problem, const void* args, const Choice& choice,
                          const Device& device, void* stream) {
  const Prepared* const prepared = choice.prepare(problem, device);
  const std::size_t bytes = choice.kernel->erased_workspace_bytes(problem, choice.config);
  if (bytes == 0) {
    choice.kernel->erased_run(problem, args, choice.config, {stream, {}, prepared});
    return;
  }
  const auto release = [&](std::byte* pointer) { device.deallocate(pointer, stream); };
  const std::unique_ptr<std::byte, decltype(release)> workspace(
      static_cast<std::byte*>(device.allocate(bytes, stream)), release);
  choice.kernel->erased_run(problem, args, choice.config,
                            {stream, {workspace.get(), bytes}, prepared});
}

}  // namespace attune
