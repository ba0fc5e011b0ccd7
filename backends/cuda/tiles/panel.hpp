// Panels: how tiles of 16-bit elements lie in shared memory. A tile is cut into panels of 64
// channels, whose rows of 128 bytes are what the swizzle of TMA and wgmma spans (swizzled()).
#pragma once

namespace attune::cuda {

inline constexpr int kPanelChannels = 64;
inline constexpr int kPanelRowBytes = 128;
static_assert(kPanelRowBytes == 2 * kPanelChannels);

}  // namespace attune::cuda
