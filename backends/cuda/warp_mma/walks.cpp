#include "cuda/warp_mma/walks.hpp"

#include <cmath>
#include <limits>

namespace attune::cuda::warp_mma {
namespace {

bool has_key_gates(const Problem& problem) { return (problem.gates & ops::kGateGk) != 0; }
bool has_value_gates(const Problem& problem) { return (problem.gates & ops::kGateGv) != 0; }
int gated_sides(const Problem& problem) {
  return (has_key_gates(problem) ? 1 : 0) + (has_value_gates(problem) ? 1 : 0);
}

/// Read and written, of a sequence and head.
int states_of(const Problem& problem) {
  return (problem.reads_states() ? 1 : 0) + (problem.writes_states() ? 1 : 0);
}

/// Of a time that is bound by two things at once.
double longer(double a, double b) { return std::cbrt(a * a * a + b * b * b); }

/// Microseconds of a warp's chunk.
struct ChunkTimes {
  double alone;   // where it waits for itself
  double shared;  // of a multiprocessor, where its warps wait for each other
};
ChunkTimes chunk_times(const Problem& problem) {
  constexpr double kAlone[] = {0.285, 0.64}, kShared[] = {0.06, 0.179};                // by width
  constexpr double kGatedAlone[] = {1, 1.52, 2.64}, kGatedShared[] = {1, 1.76, 2.97};  // by sides
  constexpr double kSplitAlone = 1.56, kSplitShared = 1.32, kF32Shared = 1.88;
  const bool is_wide = padded_width(problem.K, problem.V) > kWidths[0];
  const int sides = gated_sides(problem);
  ChunkTimes us{kAlone[is_wide] * kGatedAlone[sides], kShared[is_wide] * kGatedShared[sides]};
  if (problem.dtype != DType::kBF16) {
    us.alone *= kSplitAlone;
    us.shared *= kSplitShared;
  }
  if (problem.dtype == DType::kF32) us.shared *= kF32Shared;
  return us;
}

}  // namespace

double walks_us(const Problem& problem, const DeviceInfo& device, const Config& config) {
  constexpr double kOfLaunch = 5.1, kOfSegments = 13.2;
  constexpr double kOfState = 0.257;   // of a warp, to read or to write 32 x 32 elements
  constexpr double kOfSums = 0.23;     // share of the walk: less is read, and less far
  constexpr double kOfStart = 0.047;   // of a segment, which the next one starts from
  constexpr double kBytesPerUs = 1e6;  // of sums, read twice and written once
  const ChunkTimes of_chunk = chunk_times(problem);
  const LikelyLengths lengths(problem);
  const auto segment = static_cast<double>(config.segment);
  const auto chunks_of = [](double tokens) { return std::ceil(tokens / kChunk); };
  const auto parts_of = [&](double tokens) {
    return segment > 0 ? std::max(std::ceil(tokens / segment), 1.0) : 1.0;
  };
  const auto walks = static_cast<double>(problem.sequences() * problem.H);
  const auto cores = static_cast<double>(device.cores);
  const double parts = walks * parts_of(lengths.mean);
  const double elements = padded_width(problem.K, problem.V) * padded_width(problem.K, problem.V);
  const double all =
      (of_chunk.shared * walks * chunks_of(lengths.mean) +
       kOfState * states_of(problem) * parts * elements / (kMostWidth * kMostWidth)) /
      cores;
  return lengths.average([&](double longest) {
    const double tokens = segment > 0 ? std::min(longest, segment) : longest;
    const double us = longer(all, of_chunk.alone * chunks_of(tokens));
    if (segment == 0) return kOfLaunch + us;
    return kOfLaunch + kOfSegments + (1 + kOfSums) * us + kOfStart * parts_of(longest) +
           parts * elements * sizeof(float) / kBytesPerUs;
  });
}

double channel_chunks_us(const Problem& problem, const DeviceInfo& device) {
  constexpr double kOfLaunches = 9.1, kOfSharedChunk = 1.54, kOfChunk = 1.02, kOfState = 0.26;
  constexpr double kOfBoth[] = {1, 2.36}, kOfBothShared[] = {1, 0.665};
  constexpr double kOfValueGates = 1.42;
  constexpr double kTokens = 64;        // of a chunk
  constexpr double kInSegments = 0.41;  // of a long sequence, cut the finer
  const bool both = gated_sides(problem) == 2;
  const double mean = LikelyLengths(problem).mean;
  const double walks =
      static_cast<double>(problem.sequences() * problem.H) / static_cast<double>(device.cores);
  double shared = kOfSharedChunk * kOfBothShared[both] * walks * std::ceil(mean / kTokens);
  if (has_value_gates(problem) && !both) shared *= kOfValueGates;
  const double alone = kOfChunk * std::pow(mean / kTokens, kInSegments) / (1 + walks);
  return kOfLaunches + kOfBoth[both] * (shared + alone) + kOfState * states_of(problem) * walks;
}

Config fastest_config(const Problem& problem, const DeviceInfo& device) {
  Config best;
  double least = std::numeric_limits<double>::infinity();
  for (const int segment : kSegmentTokens) {
    if (segment >= problem.T && segment > 0) break;
    const double us = walks_us(problem, device, {.segment = segment});
    if (us < least) {
      best.segment = segment;
      least = us;
    }
  }
  return best;
}

}  // namespace attune::cuda::warp_mma
