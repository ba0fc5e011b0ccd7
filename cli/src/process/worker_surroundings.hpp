// The process around a worker's candidates: what they may not reach, and what they leave behind.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "process/descriptor.hpp"

namespace attune::cli {

/// The two ends that a worker talks through, out of the way of its candidates.
struct WorkerEnds {
  Descriptor commands;
  Descriptor replies;
};

/// Moves descriptors 0 and 1 away: candidates find an empty input, and an output that is looked at.
/// The worker dies with the thread that started it, before others when memory runs out, and without
/// a core file. It keeps the memory that it frees: results of each candidate would come to new pages
/// otherwise, which the kernel clears first, a quarter of a tuning's time.
WorkerEnds settle_in();

/// Gives back what was freed; from now on this process may take `bytes` more of memory.
void limit_memory(std::int64_t bytes);

/// What candidates do besides computing.
class Surroundings {
 public:
  /// Called before and after a candidate ran.
  void before();
  /// Why the candidate `name`, which ran `launches` times, is to be rejected, or "": it wrote to
  /// standard output, or leaves threads behind.
  std::string after(const std::string& name, int launches);

 private:
  struct Leavings {
    std::int64_t threads = 0;
    int times = 0;  // in how many requests there was at least one more thread a launch
  };
  std::int64_t threads_ = 0;
  std::map<std::string, Leavings> leavings_;
};

}  // namespace attune::cli
