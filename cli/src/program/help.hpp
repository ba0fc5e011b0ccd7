// Help screens, made from the table of verbs.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "program/verb.hpp"

namespace attune::cli {

/// `attune --help`, of a program that has attune's ops or none.
std::string program_help(bool has_ops);

/// `attune VERB --help`.
std::string verb_help(const Verb& verb);

/// What both help and manual say about a verb besides its options: paragraphs, one a line.
std::string verb_details(const Verb& verb);

/// The program's exit statuses and what they mean.
std::span<const std::pair<std::string_view, std::string_view>> exit_statuses();

}  // namespace attune::cli
