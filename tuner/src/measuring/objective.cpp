#include <attune/core/error.hpp>
#include <attune/tuner/objective.hpp>

namespace attune {

std::shared_ptr<const Objective> find_objective(std::string_view name) {
  if (name == "time") return nullptr;
  if (name == "energy") return make_energy_objective();
  throw InvalidArgument(str("objective '", name, "': expected time or energy",
                            did_you_mean(std::string(name), {"time", "energy"})));
}

std::string_view unit_of(const Tuner::Settings& settings) {
  return settings.objective == nullptr ? "us" : settings.objective->unit();
}

std::string_view objective_name(const Tuner::Settings& settings) {
  return settings.objective == nullptr ? "" : settings.objective->name();
}

}  // namespace attune
