// The program: over the framework, with the ops, kernels and devices of the library that it is
// linked with.
#include <string>
#include <vector>

#if ATTUNE_WITH_OPS
#include <attune/attune.hpp>
#endif

#include "output/terminal.hpp"
#include "program/program.hpp"

int main(int argc, char** argv) {
#if ATTUNE_WITH_OPS
  constexpr attune::cli::RegisterOps kRegisterOps = attune::register_all;
#else
  constexpr attune::cli::RegisterOps kRegisterOps = nullptr;
#endif
  attune::cli::reserve_standard_descriptors();
  attune::cli::ignore_write_signals();
  const std::vector<std::string> arguments(argv + (argc > 0 ? 1 : 0), argv + argc);
  return static_cast<int>(attune::cli::run_program(arguments, kRegisterOps));
}
