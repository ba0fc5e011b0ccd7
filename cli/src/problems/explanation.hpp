// What `attune explain` has to say about one problem, as data and as a screen.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "problems/command_context.hpp"
#include "program/verb.hpp"
#include "verbs/db/stored_rows.hpp"

namespace attune::cli {

struct KernelNote {
  const RegisteredKernel* kernel = nullptr;
  Support support;
  CandidateCount candidates = {};  // 0 when it declines
  std::optional<double> expected_us = std::nullopt;
};

struct Explanation {
  const Target* target = nullptr;
  Decision decision;
  std::vector<KernelNote> kernels;  // all of the op's, best priority first
  std::vector<TrialRow> trials;     // of the tuning that the persistent tier knows, fastest first
};

Explanation explain(const CommandContext& command, const Target& target, Evidence& evidence);

std::string_view outcome_text(TierNote::Outcome outcome);
Tone outcome_tone(TierNote::Outcome outcome);

/// "takes it", or why not.
std::string support_text(const Support& support);

/// The screen for people; with `all_trials` some hundreds of them in place of the five fastest and
/// the first five that are of no use.
std::string explanation_screen(const CommandContext& command, const Explanation& of, bool color,
                               bool all_trials);

}  // namespace attune::cli
