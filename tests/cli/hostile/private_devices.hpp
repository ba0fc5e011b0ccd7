// Tests that put devices in the way must not be able to harm the machine of whoever runs them: a
// program that replaces what it should not would take /dev/null from everybody.
#pragma once

#include <string>

namespace attune::test {

/// Gives this process and its children a /dev of their own, with copies of the devices that every
/// program expects and an empty /dev/shm, and takes from the children what lets root read and write
/// files whatever their mode. Without effect when it was called before. Nothing of it outlives the
/// process.
///
/// Returns why that cannot be, or "". An ordinary user needs none of it to be harmless, and cannot
/// make devices or files of other owners.
std::string enter_private_devices();

}  // namespace attune::test
