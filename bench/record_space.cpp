// Writes how long every point of a kernel's axes takes for one problem, as JSON: what
// tests/tuner/search/recorded_spaces_test.cpp replays searches on.
//
//   record_space OP "SPEC" KERNEL [AXIS=VALUE,VALUE...]... >tests/data/spaces/NAME.json
//
// An axis that is named has those values alone. "times" has a number for each point, those of the
// first axis fastest: the median of five samples, in units of "unit_us", or 0 where the config does
// not fit. Points are timed in random order, and are not checked against the oracle.
#include <algorithm>
#include <cstdio>
#include <numeric>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include <attune/attune.hpp>
#include <attune/core/params.hpp>

namespace {

using namespace attune;

constexpr int kSamples = 5;
constexpr double kSampleUs = 200;  // at least

std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> parts;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    parts.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

struct Recorder {
  const ErasedKernel& kernel;
  const Device& device;
  const Case& on;
  std::vector<AxisInfo> axes;

  /// The point's config, where it is legal.
  std::optional<ConfigBlob> config_at(std::size_t number) const {
    Params params;
    for (const AxisInfo& axis : axes) {
      params.push_back({axis.name, axis.values[number % axis.values.size()]});
      number /= axis.values.size();
    }
    try {
      const ConfigBlob config = kernel.parse(params);
      if (kernel.erased_fits(on.problem(), device.info(), config)) return config;
    } catch (const InvalidArgument&) {  // no instance
    }
    return std::nullopt;
  }

  double time_us(const ConfigBlob& config) const {
    const std::size_t bytes = kernel.erased_workspace_bytes(on.problem(), config);
    std::byte* scratch = nullptr;
    if (bytes > 0) scratch = static_cast<std::byte*>(device.allocate(bytes, nullptr));
    device.synchronize(nullptr);
    const auto launch = [&](void* stream, int) {
      kernel.erased_run(on.problem(), on.args(), config, {stream, {scratch, bytes}});
    };
    device.time_us(launch, 1);
    const double first = std::max(device.time_us(launch, 1), 0.1);
    const int repeats = static_cast<int>(std::clamp(kSampleUs / first, 1.0, 1000.0));
    std::vector<double> samples;
    for (int i = 0; i < kSamples; ++i) samples.push_back(device.time_us(launch, repeats) / repeats);
    if (scratch != nullptr) device.deallocate(scratch, nullptr);
    std::nth_element(samples.begin(), samples.begin() + kSamples / 2, samples.end());
    return samples[kSamples / 2];
  }
};

void print(const Recorder& recorder, const std::string& problem, const std::vector<double>& us) {
  constexpr double kDigits = 2000;  // of the fastest
  double fastest = 0;
  for (const double time : us) {
    if (time > 0 && (fastest == 0 || time < fastest)) fastest = time;
  }
  std::printf("{\"kernel\": \"%s\",\n \"problem\": \"%s\",\n \"device\": \"%s\",\n \"axes\": [",
              std::string(recorder.kernel.name()).c_str(), problem.c_str(),
              recorder.device.info().name.c_str());
  for (const AxisInfo& axis : recorder.axes) {
    std::printf("%s\n  {\"name\": \"%s\", \"values\": [", &axis == &recorder.axes[0] ? "" : ",",
                axis.name.c_str());
    for (const std::string& value : axis.values)
      std::printf("%s\"%s\"", &value == &axis.values[0] ? "" : ", ", value.c_str());
    std::printf("]}");
  }
  const Params standard = recorder.kernel.params(
      recorder.kernel.erased_heuristic(recorder.on.problem(), recorder.device.info()));
  std::printf("],\n \"default\": \"%s\",\n \"unit_us\": %.6g,\n \"times\": [",
              to_text(standard).c_str(), fastest / kDigits);
  for (std::size_t i = 0; i < us.size(); ++i) {
    std::printf("%s%.0f", i == 0 ? "" : (i % 25 == 0 ? ",\n  " : ","), us[i] / fastest * kDigits);
  }
  std::printf("]}\n");
}

void run(const std::vector<std::string>& words) {
  if (words.size() < 3) throw InvalidArgument("expected OP SPEC KERNEL [AXIS=VALUE,...]...");
  const auto context = make_context({.policy = Policy::kHeuristic, .database = ""});
  const Registry& registry = context->registry();
  const OpInfo& op = registry.op(words[0]);
  const AnyProblem problem = op.parse(parse_params(words[1], ' '));
  const RegisteredKernel* entry = registry.find_kernel(words[2]);
  if (entry == nullptr) throw InvalidArgument(str("no kernel ", words[2]));
  const Device* device = nullptr;
  for (const Device* each : registry.devices()) {
    if (each->info().id.backend == entry->at.backend) device = each;
  }
  if (device == nullptr) throw InvalidArgument(str("no device for ", words[2]));
  const std::unique_ptr<Case> on = op.make_case(problem, *device, 1);
  Recorder recorder{*entry->kernel, *device, *on, entry->kernel->axes()};
  for (std::size_t i = 3; i < words.size(); ++i) {
    const std::size_t equals = std::min(words[i].find('='), words[i].size() - 1);
    for (AxisInfo& axis : recorder.axes) {
      if (axis.name == words[i].substr(0, equals)) axis.values = split(words[i].substr(equals + 1));
    }
  }
  std::size_t points = 1;
  for (const AxisInfo& axis : recorder.axes) points *= axis.values.size();
  std::vector<std::size_t> order(points);
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::shuffle(order.begin(), order.end(), std::mt19937_64(1));
  std::vector<double> us(points);
  for (const std::size_t number : order) {
    if (const auto config = recorder.config_at(number)) us[number] = recorder.time_us(*config);
  }
  print(recorder, str(op.name, ' ', op.text(problem, false)), us);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    run({argv + 1, argv + argc});
  } catch (const std::exception& error) {
    std::fprintf(stderr, "record_space: %s\n", error.what());
    return 1;
  }
}
