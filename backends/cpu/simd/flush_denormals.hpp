// Treating denormals as zero while a kernel runs.
#pragma once

namespace attune::cpu {

/// Flushes denormal operands and results of this thread to zero until the end of the scope.
///
/// A state that decays passes through the denormals on its way to zero, and on Intel each operation
/// on one costs as much as a hundred others: the recurrent kernel ran eleven times slower with
/// gates down to -40. NEON cores take denormals at full speed, so nothing is done there.
class FlushDenormals {
 public:
  FlushDenormals() {
#if defined(__x86_64__)
    saved_ = __builtin_ia32_stmxcsr();
    __builtin_ia32_ldmxcsr(saved_ | kFlushToZero | kDenormalsAreZero);
#endif
  }
  ~FlushDenormals() {
#if defined(__x86_64__)
    __builtin_ia32_ldmxcsr(saved_);
#endif
  }
  FlushDenormals(const FlushDenormals&) = delete;
  FlushDenormals& operator=(const FlushDenormals&) = delete;

 private:
#if defined(__x86_64__)
  // Bits of MXCSR: Intel SDM volume 1, section 10.2.3.
  static constexpr unsigned kDenormalsAreZero = 1U << 6;
  static constexpr unsigned kFlushToZero = 1U << 15;
  unsigned saved_ = 0;
#endif
};

}  // namespace attune::cpu
