// System calls of a program: counted, and made to fail or to be its last, by strace(1).
#pragma once

#include <map>
#include <string>
#include <vector>

#include "attune_process.hpp"

namespace attune::test {

/// How often `call` makes each of these system calls: the most that one of its processes and
/// threads does, since strace counts for each. Nothing where there is no strace that may trace. The
/// call itself is to succeed.
std::map<std::string, int> count_system_calls(const Sandbox& here, Call call,
                                              const std::vector<std::string>& names);

/// `call`, with the n-th `name` of each of its processes and threads tampered with as strace's
/// "inject" says: "error=EIO", "signal=KILL".
Call inject(const Sandbox& here, Call call, const std::string& name, int n,
            const std::string& what);

}  // namespace attune::test
