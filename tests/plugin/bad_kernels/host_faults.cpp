// The faults of the host. Each but the last few runs well, and then does the one thing that its
// name says.
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <stdexcept>
#include <thread>
#include <vector>

#include "doubling.hpp"

namespace doubling {
namespace {

using Problem = DoublingProblem;
using Args = DoublingArgs;
using Site = const attune::LaunchSite&;

/// Where a compiler does not look: what goes through it stays as it is written.
template <class T>
T* hidden(T* pointer) {
  asm volatile("" : "+r"(pointer) : : "memory");
  return pointer;
}

void leaves_the_tail(const Problem& p, const Args& a, Site) { run_well({p.n - 1}, a); }

void is_a_little_wrong(const Problem& p, const Args& a, Site) {
  run_well(p, a);
  a.y[p.n / 2] *= 1.01F;
}

void gives_nan(const Problem& p, const Args& a, Site) {
  run_well(p, a);
  a.y[0] = std::numeric_limits<float>::quiet_NaN();
}

void is_wrong_when_large(const Problem& p, const Args& a, Site) {
  run_well(p, a);
  if (p.n > 1000) a.y[1000] = a.y[1000] / 0.0F;
}

void adds_to_its_output(const Problem& p, const Args& a, Site) {
  a.y[0] = 1e-9F * a.y[0] + 2 * a.x[0];
  for (std::int64_t i = 1; i < p.n; ++i) a.y[i] = 2 * a.x[i];
}

void is_not_repeatable(const Problem& p, const Args& a, Site) {
  static int calls = 0;
  run_well(p, a);
  if (++calls % 2 == 0) a.y[0] *= 1 + std::numeric_limits<float>::epsilon();
}

void writes_past_the_end(const Problem& p, const Args& a, Site) {
  run_well(p, a);
  hidden(a.y)[p.n] = 1;
}

void writes_before_the_beginning(const Problem& p, const Args& a, Site) {
  run_well(p, a);
  hidden(a.y)[-1] = 1;
}

void writes_past_its_workspace(const Problem& p, const Args& a, Site site) {
  run_well(p, a);
  hidden(site.workspace.data())[site.workspace.size()] = std::byte{1};
}

void changes_its_input(const Problem& p, const Args& a, Site) {
  run_well(p, a);
  const_cast<float*>(hidden(a.x))[p.n / 2] = 0;
}

void writes_to_null(const Problem&, const Args&, Site) {
  *hidden(static_cast<volatile int*>(nullptr)) = 1;
}

void overflows_the_stack(const Problem& p, const Args& a, Site site) {
  volatile char block[65536];
  block[0] = 1;
  overflows_the_stack(p, a, site);
  block[1] = block[0];
}

void calls_abort(const Problem&, const Args&, Site) { std::abort(); }
void traps(const Problem&, const Args&, Site) { __builtin_trap(); }
void divides_by_zero(const Problem&, const Args&, Site) { ::raise(SIGFPE); }

void throws_in_a_thread(const Problem&, const Args&, Site) {
  std::thread([] { throw std::runtime_error("nobody catches this"); }).join();
}

void throws_an_exception(const Problem&, const Args&, Site) {
  throw std::runtime_error("tile does not divide n");
}
void throws_a_number(const Problem&, const Args&, Site) { throw 42; }

void uses_all_memory(const Problem&, const Args&, Site) {
  std::vector<std::unique_ptr<char[]>> blocks;
  for (;;) blocks.emplace_back(new char[std::size_t{1} << 30]);  // is not touched
}

void exits_well(const Problem&, const Args&, Site) { std::exit(0); }
void exits_with_1(const Problem&, const Args&, Site) { std::_Exit(1); }

void loops_for_ever(const Problem&, const Args&, Site) {
  for (;;) asm volatile("");
}
void waits_for_ever(const Problem&, const Args&, Site) {
  for (;;) ::pause();
}

void closes_all_files(const Problem&, const Args&, Site) {
  for (int descriptor = 0; descriptor < 256; ++descriptor) ::close(descriptor);
}

void talks(const Problem& p, const Args& a, Site) {
  run_well(p, a);
  std::printf("here I am\n");
}

void leaves_threads(const Problem& p, const Args& a, Site) {
  run_well(p, a);
  std::thread([] {
    for (;;) ::pause();
  }).detach();
}

void is_slow(const Problem& p, const Args& a, Site) {
  run_well(p, a);
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
}

void is_wrong_later(const Problem& p, const Args& a, Site) {
  static int calls = 0;
  // Faster than the others, so that it is what the race is won by.
  for (std::int64_t i = 0; i < (++calls > 50 ? p.n / 4 : p.n); ++i) a.y[i] = 2 * a.x[i];
}

void crashes_later(const Problem& p, const Args& a, Site) {
  static int calls = 0;
  run_well(p, a);
  if (++calls > 500) ::raise(SIGSEGV);
}

constexpr Fault kFaults[] = {
    {"leaves_the_tail", leaves_the_tail},
    {"is_a_little_wrong", is_a_little_wrong},
    {"gives_nan", gives_nan},
    {"is_wrong_when_large", is_wrong_when_large},
    {"adds_to_its_output", adds_to_its_output},
    {"is_not_repeatable", is_not_repeatable},
    {"writes_past_the_end", writes_past_the_end},
    {"writes_before_the_beginning", writes_before_the_beginning},
    {"writes_past_its_workspace", writes_past_its_workspace},
    {"changes_its_input", changes_its_input},
    {"writes_to_null", writes_to_null},
    {"overflows_the_stack", overflows_the_stack},
    {"calls_abort", calls_abort},
    {"traps", traps},
    {"divides_by_zero", divides_by_zero},
    {"throws_in_a_thread", throws_in_a_thread},
    {"throws_an_exception", throws_an_exception},
    {"throws_a_number", throws_a_number},
    {"uses_all_memory", uses_all_memory},
    {"exits_well", exits_well},
    {"exits_with_1", exits_with_1},
    {"loops_for_ever", loops_for_ever},
    {"waits_for_ever", waits_for_ever},
    {"closes_all_files", closes_all_files},
    {"talks", talks},
    {"leaves_threads", leaves_threads},
    {"is_slow", is_slow},
    {"is_wrong_later", is_wrong_later},
    {"crashes_later", crashes_later},
};

}  // namespace

std::span<const Fault> host_faults() { return kFaults; }

}  // namespace doubling
