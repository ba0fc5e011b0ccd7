// Whether strided arrays share memory.
//
// Arrays that lie in one buffer without sharing an element are common: the slices of a fused qkv
// projection, windows of a longer sequence. So a comparison of first and last addresses is not
// enough.
#pragma once

#include <attune/core/call_check.hpp>

namespace attune {

/// False when the array spans more than 2^63 - 1 bytes. The shape has no negative extent.
bool address_range(const ViewRef& view, AddressRange& range);

/// Whether the array is dense and row-major, as most are, and then its addresses: the quick answer
/// to all questions of this file. False for one of more than 2^63 - 1 bytes.
bool dense_address_range(const ViewRef& view, AddressRange& range);

/// Whether two arrays share a byte. Exact, but for a few arrays with unrelated strides that would
/// take long to tell apart, and arrays that span more than 2^61 bytes: those count as sharing.
bool share_memory(const ViewRef& a, const ViewRef& b);

/// Whether two indices of one array may lead to the same element. True also for a few arrays of
/// interleaved dimensions where they do not.
bool overlaps_itself(const ViewRef& view);

}  // namespace attune
