#include "client/cli/input/options.h"

#include <pwd.h>
#include <unistd.h>
#include <CLI/CLI.hpp>
#include <cmath>
#include <optional>
#include <tuple>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "client/cli/output/units.h"
#include "proto/convert/record_codec.h"
#include "proto/model/byte_size.h"

namespace convtune::cli::input {

std::string AuthorOf(const std::string& given) {
  if (!given.empty()) return given;
  const passwd* entry = getpwuid(geteuid());
  return entry != nullptr && entry->pw_name[0] != '\0' ? std::string(entry->pw_name)
                                                       : absl::StrCat("uid ", geteuid());
}

CLI::Option* AddTime(CLI::App& app, const std::string& name, const std::string& description,
                     const std::function<void(absl::Duration)>& take, absl::Duration least,
                     absl::Duration most) {
  const auto read = [=](const std::string& text) {
    const auto time = output::ParseTime(name, text, least, most);
    if (!time.ok()) throw CLI::ValidationError(std::string(time.status().message()));
    take(*time);
  };
  return app.add_option_function<std::string>(name, read, description)->type_name("TIME");
}

CLI::Option* AddBytes(CLI::App& app, const std::string& name, const std::string& description,
                      const std::function<void(int64_t)>& take) {
  const auto read = [=](const std::string& text) {
    const std::optional<int64_t> bytes = ParseByteSize(text);
    if (!bytes) {
      throw CLI::ValidationError(
          name, absl::StrCat("must be 0, or a whole number and a unit (B, KiB, MiB, GiB, KB, MB, "
                             "GB), as 64MiB, of less than 2^63 bytes, is '",
                             text, "'"));
    }
    take(*bytes);
  };
  return app.add_option_function<std::string>(name, read, description)->type_name("SIZE");
}

void AddBudget(CLI::App& app, v1::TuningOptions* options) {
  AddTime(
      app, "--budget", "time for one problem, such as 2s",
      [=](absl::Duration time) { *options->mutable_time_budget() = ToProto(time); },
      absl::Milliseconds(10), absl::Hours(1));
  AddBytes(app, "--memory-budget",
           "GPU memory for tensors, workspace and flushing caches, such as 2GiB, beside what "
           "CUDA's context and cuDNN take; 0: all that is free",
           [=](int64_t bytes) {
             if (bytes > int64_t{1} << 50) {
               throw CLI::ValidationError("--memory-budget", "must be at most 2^50 bytes");
             }
             options->set_memory_budget_bytes(bytes);
           });
  AddTime(
      app, "--wait-idle", "longest wait for a GPU that no other process uses, such as 5m",
      [=](absl::Duration time) { *options->mutable_wait_idle() = ToProto(time); },
      absl::ZeroDuration(), absl::Hours(1));
}

void AddConstraints(CLI::App& app, v1::Constraints* constraints) {
  const std::string group = "What an answer must keep to";
  AddBytes(app, "--max-workspace", "largest workspace, such as 64MiB; 0: none", [=](int64_t bytes) {
    constraints->set_max_workspace_bytes(bytes);
  })->group(group);
  using Flag = std::tuple<const char*, const char*, void (v1::Constraints::*)(bool)>;
  for (const auto& [name, description, set] :
       {Flag{"--deterministic", "only candidates that give the same bits in every run",
             &v1::Constraints::set_deterministic},
        Flag{"--no-tf32", "no candidates that use tensor cores for f32 inputs",
             &v1::Constraints::set_forbid_tf32},
        Flag{"--no-down-convert", "no candidates that narrow inputs",
             &v1::Constraints::set_forbid_down_convert},
        Flag{"--no-winograd", "no candidates by Winograd transform",
             &v1::Constraints::set_forbid_winograd},
        Flag{"--no-fft", "no candidates by Fourier transform", &v1::Constraints::set_forbid_fft},
        Flag{"--no-reduced-precision", "no candidates that accumulate in a narrower type",
             &v1::Constraints::set_forbid_reduced_precision_reduction}}) {
    app.add_flag_callback(
           name, [constraints, set = set] { (constraints->*set)(true); }, description)
        ->group(group);
  }
  app.add_option_function<std::string>(
         "--api",
         [=](const std::string& api) {
           if (api != "any") constraints->set_api(api == "graph" ? v1::API_GRAPH : v1::API_LEGACY);
         },
         "cuDNN's API that the caller uses")
      ->check(CLI::IsMember({"any", "graph", "legacy"}))
      ->default_str("any")
      ->group(group);
  app.add_option_function<std::string>(
         "--launch",
         [=](const std::string& launch) {
           if (launch == "graph") constraints->set_launch(v1::LAUNCH_MODE_GRAPH_CAPTURE);
         },
         "how the caller launches: from a stream, or captured into a CUDA graph")
      ->check(CLI::IsMember({"eager", "graph"}))
      ->default_str("eager")
      ->group(group);
  app.add_option_function<double>(
         "--max-error", [=](double error) { constraints->set_max_error(error); },
         "largest difference from the reference, in units of its largest value")
      ->check([](const std::string& text) {
        double error = 0;
        const bool valid = absl::SimpleAtod(text, &error) && std::isfinite(error) && error >= 0;
        return std::string(valid ? "" : "must be a finite number of at least 0");
      })
      ->type_name("X")
      ->group(group);
  app.add_option_function<std::string>(
         "--cache",
         [=](const std::string& state) {
           constraints->set_cache_state(state == "cold"  ? v1::CACHE_STATE_COLD
                                        : state == "hot" ? v1::CACHE_STATE_HOT
                                                         : v1::CACHE_STATE_INPUT_HOT);
         },
         "rank by times taken with caches that hold nothing, x, or all")
      ->check(CLI::IsMember({"cold", "input-hot", "hot"}))
      ->group(group);
}

}  // namespace convtune::cli::input
