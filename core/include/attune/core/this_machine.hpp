// What tells this machine from others that share its files.
#pragma once

#include <string>

namespace attune {

/// The boot of this machine, 36 characters that no other machine and no other boot has: processes
/// of one boot share devices and process numbers, containers too. "" where the system does not say.
std::string boot_id();

/// The machine's name in its network, or "". A container may have one of its own.
std::string host_name();

}  // namespace attune
