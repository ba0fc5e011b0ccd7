#include "verbs/db/machine_rows.hpp"

#include "output/text.hpp"

namespace attune::cli {

const Device* device_of_class(const Registry& registry, const std::string& device_class) {
  for (const Device* device : registry.devices()) {
    if (device->info().device_class == device_class) return device;
  }
  return nullptr;
}

std::string why_stale_here(const Registry& registry, RowChecker& checker, const ConfigRow& row) {
  const Device* device = device_of_class(registry, row.key.device_class);
  const RowState state = checker.check(row).state;
  if (device == nullptr || state == RowState::kUnknown || state == RowState::kInvalid) return "";
  return why_stale(row, *registry.find_kernel(row.kernel)->kernel, device->info());
}

void MachineRows::count(const Registry& registry, RowChecker& checker, const ConfigRow& row) {
  if (device_of_class(registry, row.key.device_class) == nullptr) {
    ++elsewhere;
    return;
  }
  const RowState state = checker.check(row).state;
  if (state == RowState::kUnknown || state == RowState::kInvalid) {
    ++unusable;
    return;
  }
  ++usable;
  stale += why_stale_here(registry, checker, row).empty() ? 0 : 1;
}

std::string MachineRows::text() const {
  std::string out =
      str(count_text(usable + unusable + elsewhere, "row"), ": ", usable, " for this machine");
  if (stale > 0) {
    out += str(", ", stale, " of them stale ('attune tune --stale' measures ",
               stale == 1 ? "it" : "them", " again)");
  }
  if (unusable > 0) {
    out += str("; ", unusable, " that cannot be used here ('attune db verify' says why)");
  }
  if (elsewhere > 0) out += str("; ", elsewhere, " for other devices");
  return out;
}

}  // namespace attune::cli
