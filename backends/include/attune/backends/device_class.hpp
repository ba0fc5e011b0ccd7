// Devices that are not here: what a device class says of the devices in it.
#pragma once

#include <optional>
#include <string_view>

#include <attune/core/device.hpp>

namespace attune {

/// What kernels ask of a device, read from its class ("cpu:x86-64:avx2:8c:l1=32K:l2=1M:l3=32M",
/// "gpu:sm_90:132sm:l2=50M:mem=140G"), so that a stored config can be held against its kernel on
/// any machine. Nothing for a class that is not of attune's own backends.
std::optional<DeviceInfo> describe_device_class(std::string_view device_class);

}  // namespace attune
