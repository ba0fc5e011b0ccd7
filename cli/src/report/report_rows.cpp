#include "report/report_rows.hpp"

#include <algorithm>
#include <cmath>
#include <map>

#include <attune/cache/row_request.hpp>

#include "output/text.hpp"

namespace attune::cli {
namespace {

/// `text` as one word of a shell.
std::string shell_word(const std::string& text) {
  constexpr std::string_view kPlain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+=.,:/@%";
  if (!text.empty() && text.find_first_not_of(kPlain) == std::string::npos) return text;
  std::string word = "'";
  for (const char c : text) word += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return word + '\'';
}

/// The options that find the row's op, kernels and device again.
std::string options_for(const Invocation& call, const CommandContext& command, const RowKey& key) {
  std::string options;
  if (const auto device = command.registry().describe_device_class(key.device_class)) {
    options += " --backend " + shell_word(std::string(device->id.backend.view()));
  }
  const RowRequest request = RowRequest::parse(key.platform);
  const Constraints& constraints = request.constraints;
  if (request.platform != kAutoPlatform) options += " --platform " + shell_word(request.platform);
  if (constraints.workspace_bytes != kNoLimit)
    options += str(" --max-workspace ", constraints.workspace_bytes);
  if (constraints.bounds_error()) options += str(" --max-error ", constraints.error);
  for (const std::string& plugin : call.options.texts("plugin"))
    options += " --plugin " + shell_word(plugin);
  return options;
}

/// Of a row whose problem its op can read.
void add_commands(const Invocation& call, const CommandContext& command, ReportRow& entry) {
  const ConfigRow& row = entry.row();
  std::string problem = shell_word(entry.op());
  for (const Param& field : parse_params(entry.problem, ' '))
    problem += ' ' + shell_word(field.name + '=' + field.value);
  const std::string options = options_for(call, command, row.key);
  if (entry.state == RowState::kGood || entry.state == RowState::kStale) {
    const std::string config =
        "kernel=" + row.kernel + (row.config.empty() ? "" : ",") + row.config;
    entry.commands.push_back("attune bench " + problem + " --config " + shell_word(config) +
                             options);
  }
  entry.commands.push_back("attune tune " + problem + " --retune" + options);
}

/// This machine knows of more reasons for a row to be stale than others.
void judge(const CommandContext& command, RowChecker& checker, ReportRow& entry) {
  const RowVerdict verdict = checker.check(entry.row());
  entry.state = verdict.state;
  entry.reason = verdict.reason;
  if (entry.state != RowState::kGood) return;
  entry.reason = why_stale_here(command.registry(), checker, entry.row());
  if (!entry.reason.empty()) entry.state = RowState::kStale;
}

ReportRow report_row(const Invocation& call, const CommandContext& command, RowChecker& checker,
                     StoredRow stored) {
  ReportRow entry;
  entry.stored = std::move(stored);
  const RowKey& key = entry.row().key;
  entry.problem = problem_text_of(command, key);
  judge(command, checker, entry);
  const OpInfo* op = command.registry().find_op(key.op);
  if (op == nullptr) return entry;
  try {
    const AnyProblem problem = op->parse(parse_params(key.problem, ' '));
    entry.flops = op->flops(problem);
    entry.bytes = op->bytes(problem);
    add_commands(call, command, entry);
  } catch (const InvalidArgument&) {
    entry.unreadable = true;  // of another version of the op: it has no place in the roofline
  }
  return entry;
}

}  // namespace

Params readable_params(const std::string& text, char separator) {
  try {
    return parse_params(text, separator);
  } catch (const InvalidArgument&) {
    return {};
  }
}

std::string ReportRow::label() const {
  Params params = readable_params(problem, ' ');
  const std::string* k = find_param(params, "K");
  const std::string* v = find_param(params, "V");
  if (k == nullptr || v == nullptr || *k != *v) return problem;
  std::erase_if(params, [](const Param& param) { return param.name == "V"; });
  for (Param& param : params) {
    if (param.name == "K") param.name = "D";
  }
  return to_text(params, ' ');
}

std::string ReportRow::hover() const {
  return str(name(), ": ", number_text(row().median_us), " us, default ",
             number_text(row().default_us), " us; ", row().kernel, ' ',
             config_or_default(row().config));
}

std::int64_t ReportDevice::count(RowState state) const {
  return std::ranges::count(rows, state, &ReportRow::state);
}

std::int64_t ReportDevice::faster() const {
  constexpr double kFaster = 1.05;
  return std::ranges::count_if(rows, [](const ReportRow& row) { return row.speedup() >= kFaster; });
}

double ReportDevice::mean_speedup() const {
  double logs = 0;
  for (const ReportRow& row : rows) logs += std::log(row.speedup());
  return std::exp(logs / static_cast<double>(rows.size()));
}

double ReportDevice::most_speedup() const {
  double most = 0;
  for (const ReportRow& row : rows) most = std::max(most, row.speedup());
  return most;
}

std::vector<ReportDevice> report_devices(const Invocation& call, const CommandContext& command,
                                         StoredRows stored) {
  RowChecker checker(command.registry());
  std::map<std::string, ReportDevice> by_class;
  std::map<std::string, int> seen;
  for (StoredRow& each : stored.rows) {
    ReportRow entry = report_row(call, command, checker, std::move(each));
    entry.id = key_id(entry.row().key);
    if (const int before = seen[entry.id]++; before > 0) entry.id += str('-', before + 1);
    ReportDevice& device = by_class[entry.row().key.device_class];
    device.rows.push_back(std::move(entry));
  }
  std::vector<ReportDevice> devices;
  for (auto& [device_class, device] : by_class) {
    device.device_class = device_class;
    device.name = device.rows.front().row().device_name;
    device.is_here = device_of_class(command.registry(), device_class) != nullptr;
    devices.push_back(std::move(device));
  }
  std::ranges::stable_sort(devices, [](const ReportDevice& a, const ReportDevice& b) {
    return std::tuple(!a.is_here, b.rows.size()) < std::tuple(!b.is_here, a.rows.size());
  });
  return devices;
}

}  // namespace attune::cli
