#include "verbs/db/row_check.hpp"

#include <attune/core/error.hpp>

namespace attune::cli {
namespace {

RowVerdict invalid(std::string reason) { return {RowState::kInvalid, std::move(reason)}; }
RowVerdict unknown(std::string reason) { return {RowState::kUnknown, std::move(reason)}; }

}  // namespace

std::string_view to_string(RowState state) {
  switch (state) {
    case RowState::kGood:
      return "ok";
    case RowState::kStale:
      return "stale";
    case RowState::kUnknown:
      return "unknown";
    case RowState::kInvalid:
      return "invalid";
  }
  return "?";
}

Tone tone_of(RowState state) {
  if (state == RowState::kGood) return Tone::kGood;
  return state == RowState::kInvalid ? Tone::kBad : Tone::kPlain;
}

const DeviceInfo* RowChecker::device_of(const std::string& device_class) {
  for (const Device* device : registry_.devices()) {
    if (device->info().device_class == device_class) return &device->info();
  }
  const auto [entry, is_new] = devices_.try_emplace(device_class);
  if (is_new) entry->second = registry_.describe_device_class(device_class);
  return entry->second ? &*entry->second : nullptr;
}

RowVerdict RowChecker::check_config(const RowKey& key, const std::string& kernel,
                                    const std::string& config) {
  const OpInfo* op = registry_.find_op(key.op);
  if (op == nullptr) return unknown(str("no op '", key.op, "' is loaded"));
  const RegisteredKernel* found = registry_.find_kernel(kernel);
  if (found == nullptr) return unknown(str("no kernel '", kernel, "' is loaded"));
  const DeviceInfo* device = device_of(key.device_class);
  if (device == nullptr) return unknown(str("device class '", key.device_class, "'"));
  const ErasedKernel& impl = *found->kernel;
  if (impl.op() != key.op) return invalid(str(kernel, " computes ", impl.op(), ", not ", key.op));
  const std::string platform = key.platform.substr(0, key.platform.find(';'));
  if (platform != kAutoPlatform && platform != found->at.platform.view()) {
    return invalid(str(kernel, " is of platform ", found->at.platform, ", not ", platform));
  }
  const std::string_view backend = found->at.backend.view();
  if (backend != kAnyBackend && backend != device->id.backend.view()) {
    return invalid(str(kernel, " runs on ", backend, ", not on ", key.device_class));
  }
  try {
    const AnyProblem problem = op->parse(parse_params(key.problem, ' '));
    if (const std::string text = op->text(problem, false); text != key.problem) {
      return invalid(str("its problem is written ", text, " by now"));
    }
    if (const Support support = impl.erased_supports(problem, *device); !support) {
      return invalid(str(kernel, ": ", support.reason()));
    }
    const ConfigBlob blob = impl.parse(parse_params(config));
    if (const Support fits = impl.erased_fits(problem, *device, blob); !fits) {
      return invalid(str(kernel, ' ', config, " does not fit: ", fits.reason()));
    }
  } catch (const InvalidArgument& error) {
    return invalid(error.what());
  }
  return {};
}

RowVerdict RowChecker::check(const ConfigRow& row) {
  RowVerdict verdict = check_config(row.key, row.kernel, row.config);
  if (verdict.state != RowState::kGood) return verdict;
  const OpInfo& op = registry_.op(row.key.op);
  if (op.text(op.parse(parse_params(row.key.problem, ' ')), true) != row.bucket) {
    return invalid(str("its bucket is not ", row.bucket));
  }
  const int version = registry_.find_kernel(row.kernel)->kernel->version();
  if (version == row.kernel_version) return verdict;
  return {RowState::kStale, str("tuned for version ", row.kernel_version, " of ", row.kernel,
                                ", which is at ", version)};
}

RowVerdict RowChecker::check(const PinRow& pin) {
  return check_config(pin.key, pin.kernel, pin.config);
}

}  // namespace attune::cli
