// A runner that leaves a note on the disk of the candidate it runs, until that has run once: a
// candidate that takes the process or the machine down is found by its note and quarantined.
#pragma once

#include <functional>
#include <memory>

#include <attune/cache/suspect_note.hpp>
#include <attune/tuner/candidate_runner.hpp>

namespace attune::tuning {

/// A candidate as a note names it.
using NamesCandidate = std::function<QuarantineRow(const Candidate&)>;

/// `runner`, with a note in `note` of each candidate from its first check until it has been timed
/// once. The default is not noted: it has to run when nothing else may.
std::unique_ptr<CandidateRunner> make_suspect_runner(std::unique_ptr<CandidateRunner> runner,
                                                     const Workload& workload,
                                                     std::unique_ptr<SuspectNote> note,
                                                     NamesCandidate name);

}  // namespace attune::tuning
