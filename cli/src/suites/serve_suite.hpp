// What the suite `serve` times: data, for bench_serve.cpp.
#pragma once

#include <string>
#include <vector>

#include "suites/serving_step.hpp"
#include "suites/suites.hpp"

namespace attune::cli {

/// A step with what its time is held against. Bounds are an H200's.
struct ServingRow {
  std::string about;  // words, that choose rows: "decode", "B=64", "state=bf16"
  ServingStep step;
  std::string beside = {};              // what `parts` are
  std::vector<ServingStep> parts = {};  // whose times add up
  bool plus_bytes = false;  // and the floor of the bytes that the step has and they have not
  Bound share = {};         // of the floor, at least
  Bound ratio = {};         // of the parts' time, at most
};

/// For an accelerator, or what takes a host as long.
std::vector<ServingRow> serving_rows(bool on_host);
LayerSizes serving_layer(bool on_host);

}  // namespace attune::cli
