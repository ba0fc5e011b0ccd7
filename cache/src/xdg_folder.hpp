// Folders of the user's, by the XDG base directory specification.
#pragma once

#include <string>

namespace attune {

/// $XDG_DATA_HOME/attune, else ~/.local/share/attune; "" where there is neither.
std::string user_data_folder();
/// $XDG_CACHE_HOME/attune, else ~/.cache/attune; "" where there is neither.
std::string user_cache_folder();

}  // namespace attune
