#include "telemetry/periodic_task.hpp"

#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <utility>

namespace attune::telemetry {
namespace {

/// Blocks all signals for the calling thread until destroyed: a thread that is started meanwhile
/// never runs a handler of the program's.
class BlockedSignals {
 public:
  BlockedSignals() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~BlockedSignals() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  BlockedSignals(const BlockedSignals&) = delete;
  BlockedSignals& operator=(const BlockedSignals&) = delete;

 private:
  sigset_t before_{};
};

}  // namespace

PeriodicTask::PeriodicTask(std::chrono::milliseconds interval, std::function<void()> task,
                           std::function<void()> at_end)
    : interval_(interval),
      task_(std::move(task)),
      at_end_(std::move(at_end)),
      process_(getpid()),
      shared_(std::make_unique<Shared>()) {
  const BlockedSignals blocked;
  thread_ = std::make_unique<std::thread>([this] { work(); });
  exit_hook_.emplace([this] { stop(); });
}

PeriodicTask::~PeriodicTask() {
  exit_hook_.reset();
  stop();
}

void PeriodicTask::work() {
  std::unique_lock lock(shared_->mutex);
  while (!shared_->wake.wait_for(lock, interval_, [&] { return shared_->stopping; })) {
    lock.unlock();
    task_();
    lock.lock();
  }
  lock.unlock();
  at_end_();
}

void PeriodicTask::stop() noexcept {
  if (getpid() != process_) {
    static_cast<void>(thread_.release());  // of the parent: it can be neither joined nor destroyed
    static_cast<void>(shared_.release());
    return;
  }
  {
    const std::lock_guard lock(shared_->mutex);
    shared_->stopping = true;
  }
  shared_->wake.notify_all();
  if (thread_ != nullptr && thread_->joinable()) thread_->join();
}

}  // namespace attune::telemetry
