// How a list of problems is split into parts, which different processes or machines tune.
//
// The split is a pure function of what the list says and of the number of parts. Neither the order
// of its lines nor repetitions, recorded hits, devices or databases matter, so that machines that
// never talk to each other leave no problem out and share none. What is tuned already is to be
// skipped after the split, never before.
//
// Longest processing time first: the problem that takes longest to tune goes to the part that has
// least to do so far (Graham, "Bounds on multiprocessing timing anomalies", 1969). That is done for
// each class of devices, as machines of one class share the problems that were recorded on it.
#pragma once

#include <span>
#include <string>
#include <vector>

#include <attune/core/op.hpp>

namespace attune::distributed {

/// One line of a list, as the split sees it. Lines with equal texts are one problem.
struct PartItem {
  std::string text;          // all that says which problem it is: item_text()
  std::string device_class;  // that it is to be tuned on; "": on any
  double cost = 0;           // what tuning it takes, in any unit, >= 0: tuning_cost_us()
};

/// For each item the part that it belongs to, 0 to parts - 1. Throws InvalidArgument unless parts
/// is at least 1.
std::vector<int> partition(std::span<const PartItem> items, int parts);

/// A problem as rows are keyed by it, but for the device: an op and its aliases share them.
/// `platform` is the one that it is tuned for, "auto" or a name.
std::string item_text(const OpInfo& op, ProblemRef problem, std::string_view platform);

/// What tuning the problem costs, about, in microseconds a candidate. Of its bytes and operations
/// alone: the same on every machine.
double tuning_cost_us(const OpInfo& op, ProblemRef problem);

/// The same where one call is known to take `call_us`, and samples repeat calls to last `sample_us`
/// at least; `bytes` are the op's.
double tuning_cost_us(double call_us, double bytes, double sample_us);

}  // namespace attune::distributed
