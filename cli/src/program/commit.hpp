// The commit that the program was built from.
#pragma once

#include <string_view>

namespace attune::cli {

/// "03f70db12345", with "+" behind it where files had been changed; empty where it is not known.
extern const std::string_view kCommit;

}  // namespace attune::cli
