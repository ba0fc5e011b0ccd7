#include <string>
#include <vector>

#include "output/terminal.hpp"
#include "program/program.hpp"

int main(int argc, char** argv) {
  attune::cli::reserve_standard_descriptors();
  attune::cli::ignore_write_signals();
  const std::vector<std::string> arguments(argv + (argc > 0 ? 1 : 0), argv + argc);
  return static_cast<int>(attune::cli::run_program(arguments));
}
