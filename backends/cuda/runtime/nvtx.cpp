#include "cuda/runtime/nvtx.hpp"

#include <mutex>

#include <attune/core/profiler.hpp>

#if __has_include(<nvtx3/nvToolsExt.h>)
#include <nvtx3/nvToolsExt.h>
#define ATTUNE_HAS_NVTX 1
#endif

namespace attune::cuda {

void give_nvtx_ranges() {
#ifdef ATTUNE_HAS_NVTX
  static std::once_flag given;
  std::call_once(given, [] {
    set_profiler(
        {.begin = [](const char* label) { nvtxRangePushA(label); }, .end = [] { nvtxRangePop(); }});
  });
#endif
}

}  // namespace attune::cuda
