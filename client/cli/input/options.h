// Options that several verbs have: times and sizes, who decides, how much a tuning may cost, and
// what answers must keep to. What they set must outlive the CLI::App.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "absl/time/time.h"
#include "convtune/v1/tuning.pb.h"
#include "convtune/v1/tuning_service.pb.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace convtune::cli::input {

// `given`, or the user's name where that is empty.
std::string AuthorOf(const std::string& given);

// Adds an option whose value is a time such as 10s, from `least` to `most`, which `take` gets.
CLI::Option* AddTime(CLI::App& app, const std::string& name, const std::string& description,
                     const std::function<void(absl::Duration)>& take,
                     absl::Duration least = absl::ZeroDuration(),
                     absl::Duration most = absl::InfiniteDuration());
// Adds an option whose value is a size, which `take` gets in bytes: 0, or a whole number and one of
// B, KiB, MiB, GiB, KB, MB and GB.
CLI::Option* AddBytes(CLI::App& app, const std::string& name, const std::string& description,
                      const std::function<void(int64_t)>& take);

// Adds --budget, --memory-budget and --wait-idle, which set `options`.
void AddBudget(CLI::App& app, v1::TuningOptions* options);
// Adds the options that say what answers must keep to, which set `constraints`.
void AddConstraints(CLI::App& app, v1::Constraints* constraints);

}  // namespace convtune::cli::input
