// What a tuner and its worker say to each other: one JSON object a line.
//
//   {"do":"open","op":..,"problem":..,"device":..,"seed":..,"oracle":..,"default":..,"objective":..,
//    "memory":..}
//   {"do":"prepare","candidates":[..],"budget_ms":60000}     -> {"verdicts":[..]}
//   {"do":"check","kernel":..,"config":..,"round":0}         -> {"verdict":..} or {"fits":false}
//   {"do":"check_full","kernel":..,"config":..,"like":{..}}  -> {"verdict":..}
//   {"do":"time","kernel":..,"config":..,"repeats":20}       -> {"us":2366,"score":118.3} or {"verdict":..}
//
// A verdict is {"outcome":..,"reason":..,"error":..}. A reply with "over" says why the worker is of
// no more use: its device is lost, or a candidate has left something behind. {"error":..} means
// that what was asked could not be done, and is no candidate's doing. {"log":..,"level":..} may
// come before any reply.
#pragma once

#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include <attune/tuner/candidate_runner.hpp>

namespace attune::cli {

/// What a worker says last that could not send its answer, which is no fault of the candidate's.
inline constexpr std::string_view kCannotAnswer = "cannot answer";

/// One line. Bytes that are no UTF-8, as a kernel's message may hold, are replaced.
std::string to_line(const nlohmann::json& message);

/// Null when the line is no JSON object.
nlohmann::json from_line(std::string_view line);

/// {"kernel":..,"config":..}.
nlohmann::json to_json(const Candidate& candidate);
/// Throws InvalidArgument and Unavailable.
Candidate candidate_from(const nlohmann::json& message, const Registry& registry);

nlohmann::json to_json(const tuning::Verdict& verdict);
/// Throws nlohmann::json::exception when it is none.
tuning::Verdict verdict_from(const nlohmann::json& message);

}  // namespace attune::cli
