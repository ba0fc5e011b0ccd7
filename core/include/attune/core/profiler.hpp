// Ranges on a profiler's timeline: around first choices and tunings, and around launches where that
// is asked for. The CUDA backend gives NVTX's ranges, which Nsight shows; what is given here serves
// any other profiler.
//
//   ATTUNE_NVTX   ranges around
//   off           nothing
//   choices       first choices and tunings; the default while a profiler is attached, which sets
//                 NVTX_INJECTION64_PATH
//   launches      these, and each launch of a kernel
#pragma once

#include <string>

#include <attune/core/function_ref.hpp>

namespace attune {

/// Begins a range of the calling thread, and ends the one it began last. Neither may throw.
struct Profiler {
  void (*begin)(const char* label) = nullptr;
  void (*end)() = nullptr;
};

enum class ProfilerRanges { kOff, kChoices, kLaunches };

/// What ATTUNE_NVTX says, or its default.
ProfilerRanges profiler_ranges_from_environment();

/// From now on, and which ranges. To be called before contexts are in use by other threads.
void set_profiler(const Profiler& profiler,
                  ProfilerRanges ranges = profiler_ranges_from_environment());

/// A range from here to its end. Where it is not wanted, that costs one relaxed load, and the label
/// is not made.
class ProfilerRange {
 public:
  /// `of`: kChoices or kLaunches.
  ProfilerRange(ProfilerRanges of, FunctionRef<std::string()> label);
  ~ProfilerRange();
  ProfilerRange(const ProfilerRange&) = delete;
  ProfilerRange& operator=(const ProfilerRange&) = delete;

 private:
  void (*end_)() = nullptr;
};

}  // namespace attune
