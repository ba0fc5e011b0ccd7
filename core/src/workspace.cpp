#include <cstdint>

#include <attune/core/error.hpp>
#include <attune/core/workspace.hpp>

namespace attune {

void check_workspace(std::string_view op, std::span<std::byte> workspace, std::size_t bytes) {
  if (workspace.size() < bytes) {
    throw InvalidArgument(
        str(op, ": workspace has ", workspace.size(), " bytes, expected at least ", bytes));
  }
  const auto address = reinterpret_cast<std::uintptr_t>(workspace.data());  // to look at alone
  if (bytes > 0 && address % kWorkspaceAlignment != 0) {
    throw InvalidArgument(str(op, ": workspace begins ", address % kWorkspaceAlignment,
                              " bytes behind a multiple of ", kWorkspaceAlignment,
                              ", expected one that is aligned to it"));
  }
}

}  // namespace attune
