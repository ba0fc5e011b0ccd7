// A runner that notes which candidate runs for the first time, so that one which takes the process
// or the machine along is known when either starts again.
#pragma once

#include <functional>
#include <memory>

#include <attune/cache/suspect_note.hpp>
#include <attune/tuner/candidate_runner.hpp>

namespace attune::tuning {

/// A candidate as a note names it.
using NamesCandidate = std::function<QuarantineRow(const Candidate&)>;

/// `runner`, noting in `note` until each candidate has been timed once. The default is not noted:
/// it is what runs when nothing else may.
std::unique_ptr<CandidateRunner> make_noting_runner(std::unique_ptr<CandidateRunner> runner,
                                                    const Workload& workload,
                                                    std::unique_ptr<SuspectNote> note,
                                                    NamesCandidate name);

}  // namespace attune::tuning
