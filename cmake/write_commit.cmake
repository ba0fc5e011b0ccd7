# Usage: cmake -DSOURCE=<tree> -DOUTPUT=<file.cpp> -P write_commit.cmake
#
# Writes kCommit of cli/src/program/commit.hpp: what `git archive` put into commit.txt, else what git says
# of the tree, else nothing. The file is touched only where that has changed.
file(READ ${SOURCE}/cmake/commit.txt commit)
string(STRIP "${commit}" commit)
string(SUBSTRING "${commit}" 0 12 commit)
if(commit MATCHES "^.Format")
  set(commit "")
  if(EXISTS ${SOURCE}/.git)  # else it would be that of a project which has attune as a folder
    execute_process(COMMAND git -C ${SOURCE} rev-parse --short=12 HEAD
                    OUTPUT_VARIABLE commit OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
    execute_process(COMMAND git -C ${SOURCE} status --porcelain --untracked-files=no
                    OUTPUT_VARIABLE changes ERROR_QUIET)
    if(changes)
      string(APPEND commit "+")
    endif()
  endif()
endif()
file(CONFIGURE OUTPUT ${OUTPUT} @ONLY CONTENT [[
#include "program/commit.hpp"

namespace attune::cli {

const std::string_view kCommit = "@commit@";

}  // namespace attune::cli
]])
