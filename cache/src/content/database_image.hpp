// A database as the bytes of its file, for a place where it is put as a whole.
#pragma once

#include <string>

#include <attune/cache/database_content.hpp>

namespace attune {

/// Throws InvalidArgument for a value that may not be stored.
std::string image_of(const DatabaseContent& content);

}  // namespace attune
