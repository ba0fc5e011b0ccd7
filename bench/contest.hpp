// Choices against each other on one problem: samples alternate, so that a drifting clock moves all
// alike, and all work in the same memory, whose place in the caches is worth some per cent.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include <attune/attune.hpp>

namespace attune::bench {

/// One problem's tensors, several times over, so that no launch finds its own in the cache.
class Copies {
 public:
  Copies(const OpInfo& op, ProblemRef problem, const Device& device);
  ProblemRef problem() const { return cases_.front()->problem(); }
  const Device& device() const { return *device_; }
  double time_us(const Choice& choice, Tensor& workspace, int repeats) const;

 private:
  const Device* device_;
  std::vector<std::unique_ptr<Case>> cases_;
};

struct Contender {
  Choice choice;
  std::vector<double> samples_us = {};  // one a round
  double median_us() const;
};

/// `rounds` more samples of each, in turns.
void contest(const Copies& copies, std::span<Contender> contenders, int rounds);

/// The problems that a word of the command line stands for: "OP SPEC", or @FILE with one a line,
/// where lines that are empty or start with # say nothing. Throws InvalidArgument when the file
/// cannot be read.
std::vector<std::string> problems_of(const std::string& word);

}  // namespace attune::bench
