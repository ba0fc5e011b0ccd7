#include <exception>
#include <new>
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
    run_choice(problem, args, choice, *request.device, request.stream, request.memory);
  } catch (const std::exception& error) {
    tell_of_failure(*context_, problem, choice, request, error);
    throw;
  }
}

Request Executor::bound_by_memory(std::string_view op, const Request& request) const {
  const CallMemory& memory = request.memory;
  Request bound = context_->on_own_device(request);
  if (!memory.workspace) return bound;
  const std::string_view name = request.called_as.empty() ? op : request.called_as;
  if (memory.allocator != nullptr) {
    throw InvalidArgument(str(name, ": workspace and workspace_allocator: expected one of them"));
  }
  check_workspace(name, *memory.workspace, memory.workspace->empty() ? 0 : 1);
  bound.workspace_limit = memory.limit(request.workspace_limit);
  return bound;
}

void Executor::refuse_memory(std::string_view op, const Request& request) {
  if (!request.memory.workspace && request.memory.allocator == nullptr) return;
  throw InvalidArgument(str(request.called_as.empty() ? op : request.called_as,
                            ": workspace: a plan takes it with each launch; workspace_limit bounds "
                            "what the plan may need"));
}

Choice Executor::run(const Case& on, const Request& request) const {
  const Request bound = bound_by_memory(on.problem().op, request);
  const Choice choice = context_->select(on.problem(), bound);
  run_selected(on.problem(), on.args(), choice, bound);
  return choice;
}

void Executor::run_choice(ProblemRef problem, const void* args, const Choice& choice,
                          const Device& device, void* stream, const CallMemory& memory) {
  const Prepared* const prepared = choice.prepare(problem, device);
  const auto run_in = [&](std::span<std::byte> workspace) {
    choice.kernel->erased_run(problem, args, choice.config,
                              {stream, workspace, prepared, device.threads()});
  };
  const std::size_t bytes = choice.kernel->erased_workspace_bytes(problem, choice.config);
  if (bytes == 0) return run_in({});
  if (memory.workspace) {
    check_workspace(problem.op, *memory.workspace, bytes);
    return run_in(memory.workspace->first(bytes));
  }
  const auto release = [&](std::byte* pointer) {
    if (memory.allocator != nullptr) {
      memory.allocator->deallocate(pointer, bytes, stream);
    } else {
      device.deallocate(pointer, stream);
    }
  };
  const std::unique_ptr<std::byte, decltype(release)> workspace(
      static_cast<std::byte*>(memory.allocator == nullptr
                                  ? device.allocate(bytes, stream)
                                  : memory.allocator->allocate(bytes, device.info().id, stream)),
      release);
  if (workspace == nullptr) throw std::bad_alloc();
  check_workspace(problem.op, {workspace.get(), bytes}, bytes);
  run_in({workspace.get(), bytes});
}

}  // namespace attune
