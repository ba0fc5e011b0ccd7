#include "thread_pool.hpp"

#include <algorithm>
#include <chrono>
#include <csignal>
#include <system_error>
#include <utility>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace attune {
namespace {

/// How long a helper looks for more work before it sleeps, and a caller for the last of its
/// helpers.
constexpr std::chrono::microseconds kSpin{50};
/// How long a helper goes on looking, giving its core to whoever wants it between two looks, when
/// its last work came as soon as that: a host calls at a steady pace then.
constexpr std::chrono::microseconds kPatience{500};
/// How long a caller leaves a task to the helper that owns it and is awake. Taking it over costs
/// more than that where its data are in the other core's cache, in this loop and in the next.
constexpr std::chrono::microseconds kGrace{3};
constexpr int kWakeAtOnce = 2;  // a system call each; the woken go on

void pause() {
#if defined(__x86_64__)
  _mm_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

using Clock = std::chrono::steady_clock;

/// Whether `done` came true in time.
template <class Done>
bool spin_until(const Done& done, Clock::time_point end) {
  constexpr int kLooksAtOnce = 8;  // between looks at the clock
  do {
    for (int i = 0; i < kLooksAtOnce; ++i) {
      if (done()) return true;
      pause();
    }
  } while (Clock::now() < end);
  return false;
}

/// The same, for whoever has nothing better to do with the core but leaves it to others.
template <class Done>
bool yield_until(const Done& done, Clock::time_point end) {
  do {
    if (done()) return true;
    std::this_thread::yield();
  } while (Clock::now() < end);
  return done();
}

/// While it lives, threads are made with all signals blocked: signals are the host program's.
class SignalsBlocked {
 public:
  SignalsBlocked() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;

 private:
  sigset_t before_{};
};

// Fields of a region's state, from the lowest bits on: how many joined, how many were asked, the
// first of them. The rest is the loop's number.
constexpr int kFieldBits = 12;
constexpr std::uint64_t kField = (std::uint64_t{1} << kFieldBits) - 1;

constexpr int joined_of(std::uint64_t state) { return static_cast<int>(state & kField); }
constexpr int asked_of(std::uint64_t state) {
  return static_cast<int>(state >> kFieldBits & kField);
}
constexpr int first_of(std::uint64_t state) {
  return static_cast<int>(state >> 2 * kFieldBits & kField);
}

constexpr std::uint64_t number_of(std::uint64_t state) { return state >> 3 * kFieldBits; }

/// Tasks that may have an owner: as many as taken_ has bits.
constexpr int kMostOwned = 64;

}  // namespace

// ---- a region ----

bool ThreadPool::Region::reserve() {
  return !reserved_.load(std::memory_order_relaxed) &&
         !reserved_.exchange(true, std::memory_order_acquire);
}

void ThreadPool::Region::open(std::int64_t tasks, const Asked& asked, const Body& body) {
  tasks_ = tasks;
  owned_ = std::min<std::int64_t>({tasks, asked.count + 1, kMostOwned});
  body_ = &body;
  taken_.store(0, std::memory_order_relaxed);
  next_.store(owned_, std::memory_order_relaxed);
  left_.store(0, std::memory_order_relaxed);
  failed_.store(false, std::memory_order_relaxed);
  const std::uint64_t number = number_of(state_.load(std::memory_order_relaxed)) + 1;
  state_.store(number << 3 * kFieldBits |
                   static_cast<std::uint64_t>(asked.first) << 2 * kFieldBits |
                   static_cast<std::uint64_t>(asked.count) << kFieldBits,
               std::memory_order_release);
}

ThreadPool::Asked ThreadPool::Region::asked() const {
  const std::uint64_t state = state_.load(std::memory_order_relaxed);
  return {first_of(state), asked_of(state)};
}

bool ThreadPool::Region::help(int index, int count, std::uint64_t& joined) {
  std::uint64_t state = state_.load(std::memory_order_relaxed);
  int place = 0;
  do {
    place = (index - first_of(state) + count) % count;
    if (place >= asked_of(state) || number_of(state) == joined) return false;
  } while (!state_.compare_exchange_weak(state, state + 1, std::memory_order_acquire,
                                         std::memory_order_relaxed));
  joined = number_of(state);
  work(place + 1);
  left_.fetch_add(1, std::memory_order_release);
  left_.notify_one();
  return true;
}

bool ThreadPool::Region::take(std::int64_t own) {
  const std::uint64_t bit = std::uint64_t{1} << own;
  return (taken_.fetch_or(bit, std::memory_order_relaxed) & bit) == 0;
}

void ThreadPool::Region::run_task(std::int64_t task) noexcept {
  if (failed_.load(std::memory_order_relaxed)) return;
  try {
    (*body_)(task);
  } catch (...) {
    if (!failed_.exchange(true, std::memory_order_relaxed)) error_ = std::current_exception();
  }
}

void ThreadPool::Region::work(std::int64_t own) noexcept {
  if (own < owned_ && take(own)) run_task(own);
  while (next_.load(std::memory_order_relaxed) < tasks_) {
    const std::int64_t task = next_.fetch_add(1, std::memory_order_relaxed);
    if (task < tasks_) run_task(task);
  }
}

void ThreadPool::Region::work_for_missing(std::uint64_t late) noexcept {
  const auto is_taken = [&](std::int64_t task) {
    return (taken_.load(std::memory_order_relaxed) >> task & 1) != 0;
  };
  const auto take_over = [&](std::int64_t task) {
    if (!is_taken(task) && take(task)) run_task(task);
  };
  for (std::int64_t task = 1; task < owned_; ++task) {
    if ((late >> task & 1) != 0) take_over(task);
  }
  const Clock::time_point start = Clock::now();
  for (std::int64_t task = 1; task < owned_; ++task) {
    spin_until([&] { return is_taken(task); }, start + kGrace);
    take_over(task);
  }
}

std::exception_ptr ThreadPool::Region::close() {
  const std::uint64_t state = state_.fetch_and(~(kField << kFieldBits), std::memory_order_relaxed);
  const auto joined = static_cast<std::uint32_t>(joined_of(state));
  const auto all_left = [&] { return left_.load(std::memory_order_acquire) == joined; };
  while (!spin_until(all_left, Clock::now() + kSpin)) {
    const std::uint32_t left = left_.load(std::memory_order_acquire);
    if (left != joined) left_.wait(left, std::memory_order_acquire);
  }
  std::exception_ptr error = std::exchange(error_, nullptr);
  reserved_.store(false, std::memory_order_release);
  return error;
}

// ---- helpers ----

ThreadPool::ThreadPool(int helpers)
    : most_(std::min(helpers, static_cast<int>(kField))),
      helpers_(std::make_unique<Helper[]>(static_cast<std::size_t>(most_))) {}

void ThreadPool::await_region(Helper& helper, std::uint32_t seen) {
  const auto opened = [&] { return opened_.load() != seen; };
  const Clock::time_point start = Clock::now();
  if (spin_until(opened, start + kSpin)) return;
  if (helper.is_patient && yield_until(opened, start + kPatience)) return;
  asleep_.fetch_add(1);
  helper.asleep.store(1);
  // Whoever opens a region from now on sees that this one is asleep.
  if (!opened() && !stopped_.load()) helper.asleep.wait(1);
  helper.asleep.store(0);
  asleep_.fetch_sub(1);
  helper.is_patient = Clock::now() - start < kPatience;
  // Whoever is woken wakes others, so that a caller does not spend its time on it.
  for (const Region& region : regions_) {
    if (const Asked asked = region.asked(); asked.count > 0) wake(asked);
  }
}

void ThreadPool::help_until_stopped(int index) {
  Helper& helper = helpers_[static_cast<std::size_t>(index)];
  while (!stopped_.load()) {
    const std::uint32_t seen = opened_.load();
    bool helped = false;
    for (std::size_t i = 0; i < kMostRegions; ++i) {
      helped |= regions_[i].help(index, most_, helper.joined[i]);
    }
    if (!helped) await_region(helper, seen);
  }
}

std::uint64_t ThreadPool::late(const Asked& asked) const {
  std::uint64_t tasks = 0;
  const int size = size_.load(std::memory_order_relaxed);
  for (int i = 0; i < asked.count && i + 1 < kMostOwned; ++i) {
    const int index = (asked.first + i) % most_;
    const bool is_late =
        index >= size || helpers_[static_cast<std::size_t>(index)].asleep.load() != 0;
    if (is_late) tasks |= std::uint64_t{1} << (i + 1);
  }
  return tasks;
}

void ThreadPool::wake(const Asked& asked) {
  int woken = 0;
  for (int i = 0; i < asked.count && woken < kWakeAtOnce; ++i) {
    Helper& helper = helpers_[static_cast<std::size_t>((asked.first + i) % most_)];
    if (helper.asleep.load() == 0 || helper.asleep.exchange(0) == 0) continue;
    helper.asleep.notify_one();
    ++woken;
  }
}

void ThreadPool::grow(int helpers) {
  if (size_.load(std::memory_order_relaxed) >= helpers) return;
  const std::lock_guard lock(growing_);
  const SignalsBlocked signals_blocked;
  try {
    for (int i = size_.load(); i < helpers; ++i) {
      helpers_[static_cast<std::size_t>(i)].thread =
          std::thread([this, i] { help_until_stopped(i); });
      size_.store(i + 1);
    }
  } catch (const std::system_error&) {
    // The system grants no more threads: a loop needs none.
  }
}

void ThreadPool::run(std::int64_t tasks, int helpers, Body body) {
  const auto region = std::find_if(regions_.begin(), regions_.end(),
                                   [](Region& candidate) { return candidate.reserve(); });
  if (region == regions_.end()) {
    for (std::int64_t task = 0; task < tasks; ++task) body(task);
    return;
  }
  // Loops that run at the same time ask others, as long as there are some.
  Asked asked{.first = 0, .count = std::min(helpers, most_)};
  for (auto other = regions_.begin(); other != region; ++other) asked.first += other->asked().count;
  asked.first %= most_;
  grow(std::min(asked.first + asked.count, most_));
  region->open(tasks, asked, body);
  opened_.fetch_add(1);
  const bool any_asleep = asleep_.load() > 0 || size_.load(std::memory_order_relaxed) < most_;
  const std::uint64_t late_tasks = any_asleep ? late(asked) : 0;
  if (late_tasks != 0) wake(asked);
  region->work(0);
  region->work_for_missing(late_tasks);
  if (const std::exception_ptr error = region->close()) std::rethrow_exception(error);
}

ThreadPool::~ThreadPool() {
  stopped_.store(true);
  opened_.fetch_add(1);
  for (int i = 0; i < size_.load(); ++i) {
    Helper& helper = helpers_[static_cast<std::size_t>(i)];
    helper.asleep.store(0);
    helper.asleep.notify_one();
    // A task may end the program: exit() then comes here on a thread of the pool.
    if (helper.thread.get_id() == std::this_thread::get_id()) {
      helper.thread.detach();
    } else {
      helper.thread.join();
    }
  }
}

}  // namespace attune
