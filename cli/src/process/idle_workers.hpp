// Workers between two problems.
//
// A worker that has met nothing but right candidates is as good as a fresh one, which takes half a
// second to start where there is a GPU, and longer beside others that start. Of the host none is
// kept: there a worker's memory is bounded from its start.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "process/child_process.hpp"

namespace attune::cli {

/// By device. A worker ends with the thread that started it, so one thread has a device for itself.
class IdleWorkers {
 public:
  /// One that waits for a problem of the device, or null.
  std::unique_ptr<ChildProcess> take(const std::string& device) {
    const std::lock_guard lock(mutex_);
    return std::exchange(workers_[device], nullptr);
  }
  void put(const std::string& device, std::unique_ptr<ChildProcess> worker) {
    const std::lock_guard lock(mutex_);
    workers_[device] = std::move(worker);
  }

 private:
  std::mutex mutex_;
  std::map<std::string, std::unique_ptr<ChildProcess>> workers_;
};

}  // namespace attune::cli
