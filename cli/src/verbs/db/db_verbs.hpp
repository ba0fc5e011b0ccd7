// The verbs of `attune db`, each in a file of its own, and what they share.
#pragma once

#include <span>
#include <string>
#include <vector>

#include <attune/cache/database_text.hpp>

#include "problems/command_context.hpp"
#include "program/verb.hpp"

namespace attune::cli {

using Words = std::span<const std::string>;

ExitCode show_rows(const Invocation& call, const CommandContext& command, Words words);
ExitCode print_stats(const Invocation& call, const CommandContext& command, Words words);
ExitCode verify_files(const Invocation& call, const CommandContext& command, Words words);
ExitCode verify_coverage(const Invocation& call, const CommandContext& command, Words words);
ExitCode print_digests(const Invocation& call, const CommandContext& command, Words words);
ExitCode merge_files(const Invocation& call, const CommandContext& command, Words words);
ExitCode diff_files(const Invocation& call, const CommandContext& command, Words words);
ExitCode export_rows(const Invocation& call, const CommandContext& command, Words words);
ExitCode import_files(const Invocation& call, const CommandContext& command, Words words);
ExitCode collect_garbage(const Invocation& call, const CommandContext& command, Words words);
ExitCode pin_problems(const Invocation& call, const CommandContext& command, Words words);
ExitCode unpin_problems(const Invocation& call, const CommandContext& command, Words words);
ExitCode print_history(const Invocation& call, const CommandContext& command, Words words);
ExitCode use_content(const Invocation& call, const CommandContext& command, Words words);

/// Launches each decision's config for devices that are here, checks what it computes against the
/// oracle and times it against the default. Exit code kNo when one is wrong.
ExitCode relaunch_rows(const Invocation& call, const CommandContext& command,
                       const std::vector<std::string>& files);

/// The files that are named, or those in effect: the user's, the site's and the shipped ones.
std::vector<std::string> files_or_those_in_effect(const CommandContext& command, Words words);

/// Where the user's database is. Throws CacheError when there is none.
const std::string& user_database(const CommandContext& command);

/// --output. Throws UsageError without it, and when it is one of `inputs` or the user's database:
/// what is read is never written.
std::string output_path(const Invocation& call, const CommandContext& command, Words inputs);

/// Rows that a file had and that could not be used.
void note_bad_rows(const Invocation& call, const std::string& path, const DatabaseContent& content);

/// write_database_file(), which a database with a history keeps what it held for, and what it holds
/// then, as generations.
void write_keeping_history(const std::string& path, const DatabaseContent& content, bool read_only);

/// "kernel config", for people.
std::string choice_text(const ConfigRow& row);

}  // namespace attune::cli
