#include <atomic>
#include <cstdlib>

#include <attune/core/environment.hpp>
#include <attune/core/error.hpp>
#include <attune/core/log.hpp>
#include <attune/core/profiler.hpp>

namespace attune {
namespace {

/// Written before the ranges are, which say that it may be read.
Profiler in_use;
std::atomic<ProfilerRanges> wanted = ProfilerRanges::kOff;

}  // namespace

ProfilerRanges profiler_ranges_from_environment() {
  const std::optional<std::string> text = read_environment("ATTUNE_NVTX");
  if (!text) {
    const bool attached = secure_getenv("NVTX_INJECTION64_PATH") != nullptr;
    return attached ? ProfilerRanges::kChoices : ProfilerRanges::kOff;
  }
  if (*text == "off") return ProfilerRanges::kOff;
  if (*text == "choices") return ProfilerRanges::kChoices;
  if (*text == "launches") return ProfilerRanges::kLaunches;
  log_once(LogLevel::kWarning,
           str("ATTUNE_NVTX=", *text, ": expected off, choices or launches; it is off"));
  return ProfilerRanges::kOff;
}

void set_profiler(const Profiler& profiler, ProfilerRanges ranges) {
  wanted.store(ProfilerRanges::kOff, std::memory_order_relaxed);
  in_use = profiler;
  const bool usable = profiler.begin != nullptr && profiler.end != nullptr;
  wanted.store(usable ? ranges : ProfilerRanges::kOff, std::memory_order_release);
}

ProfilerRange::ProfilerRange(ProfilerRanges of, FunctionRef<std::string()> label) {
  if (wanted.load(std::memory_order_relaxed) < of) return;
  std::atomic_thread_fence(std::memory_order_acquire);
  in_use.begin(label().c_str());
  end_ = in_use.end;
}

ProfilerRange::~ProfilerRange() {
  if (end_ != nullptr) end_();
}

}  // namespace attune
