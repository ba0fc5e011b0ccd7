// Help screens, made from the table of verbs.
#pragma once

#include <string>

#include "verb.hpp"

namespace attune::cli {

/// `attune --help`.
std::string program_help();

/// `attune VERB --help`.
std::string verb_help(const Verb& verb);

}  // namespace attune::cli
