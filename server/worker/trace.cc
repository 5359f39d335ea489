#include "server/worker/trace.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/base/clock.h"
#include "server/worker/device/device_profile.h"

namespace convtune::worker {
namespace {

using Json = nlohmann::json;

// JSON has no numbers for what is not finite.
Json Number(double value) {
  if (std::isfinite(value)) return value;
  return std::isnan(value) ? "nan" : value > 0 ? "inf" : "-inf";
}

// What every line of a candidate has; `status`: of what was done with it.
Json Of(int index, const CandidateId& id, const absl::Status& status) {
  Json fields = {{"index", index}, {"candidate", ToText(id)}};
  if (!status.ok()) fields["failure"] = std::string(status.message());
  return fields;
}

Json Times(double gpu_us, double host_us) {
  return {{"gpu_us", Number(gpu_us)}, {"host_us", Number(host_us)}};
}

Json Pair(const Stamp& stamp) { return {stamp.timer_ns, stamp.cycles}; }

absl::Status BadVariable(const std::string& path, const char* why) {
  return absl::InvalidArgumentError(absl::StrCat(Trace::kVariable, ": ", path, ": ", why));
}

}  // namespace

absl::StatusOr<std::unique_ptr<Trace>> Trace::FromEnvironment() {
  const char* const value = std::getenv(kVariable);
  if (value == nullptr || *value == '\0') return nullptr;
  std::string path = value;
  if (path[0] != '/') return BadVariable(path, "must be an absolute path");
  const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (fd < 0) return BadVariable(path, std::strerror(errno));
  return std::unique_ptr<Trace>(new Trace(std::move(path), fd));
}

Trace::~Trace() {
  if (fd_ >= 0) close(fd_);
}

void Trace::PutWorker(const Environment& environment, const Provenance& provenance) {
  Put("worker", {{"trace", kFormatVersion},
                 {"environment", environment.ToText()},
                 {"driver_version", provenance.driver_version},
                 {"cuda_version", provenance.cuda_version},
                 {"cublaslt_build", provenance.cublaslt_build},
                 {"nvrtc_build", provenance.nvrtc_build},
                 {"gpu_uuid", provenance.gpu_uuid}});
}

void Trace::PutProblem(const std::string& text) { Put("problem", {{"problem", text}}); }

void Trace::PutPrepared(int index, const CandidateId& id,
                        const absl::StatusOr<worker::v1::Prepared>& prepared, absl::Duration took) {
  Json fields = Of(index, id, prepared.status());
  fields["took_us"] = Number(absl::ToDoubleMicroseconds(took));
  if (prepared.ok()) {
    fields.update({{"workspace_bytes", prepared->workspace_bytes()},
                   {"over_memory", prepared->over_memory()}});
  }
  Put("prepared", fields);
}

void Trace::PutChecked(int index, const CandidateId& id,
                       const absl::StatusOr<worker::v1::Checked>& checked) {
  Json fields = Of(index, id, checked.status());
  if (checked.ok()) {
    fields.update({{"error", checked->has_error() ? Number(checked->error()) : Json()},
                   {"magnitude", Number(checked->magnitude())},
                   {"nonfinite", checked->nonfinite()},
                   {"out_of_bounds", checked->out_of_bounds()},
                   {"capture",
                    checked->capture() == 0
                        ? "unknown"
                        : EnumWord(*convtune::v1::CaptureSupport_descriptor(), checked->capture())},
                   {"capture_refusal", checked->capture_refusal()},
                   {"first", Times(checked->first_gpu_us(), checked->first_host_us())}});
    if (!checked->hopeless()) fields["second"] = Times(checked->gpu_us(), checked->host_us());
  }
  Put("check", fields);
}

void Trace::PutSample(int index, const CandidateId& id, int round, const worker::v1::Measure& how,
                      const absl::StatusOr<TimedRun>& run) {
  Json fields = Of(index, id, run.status());
  fields.update({{"round", round},
                 {"launch", std::string(Name(static_cast<LaunchMode>(how.launch())))},
                 {"cache_state", std::string(Name(static_cast<CacheState>(how.cache_state())))}});
  if (run.ok()) {
    fields.update(Times(run->gpu_us, run->host_us));
    fields.update({{"runs", run->runs},
                   {"sm_clock_mhz", Number(run->sm_clock_mhz)},
                   {"blocked", run->blocked},
                   {"gave_up", run->gave_up},
                   {"stamps", {Pair(run->stamps[0]), Pair(run->stamps[1])}}});
  }
  Put("sample", fields);
}

void Trace::PutConditions(const ConditionsLook& look) {
  const Conditions& c = look.conditions;
  Json fields = {{"known", c.known}};
  if (c.known) {
    fields.update({{"other_processes", c.other_processes},
                   {"clock_reasons", c.clock_reasons},
                   {"power_limit_watts", Number(c.power_limit_watts)},
                   {"temperature_celsius", c.temperature_celsius},
                   {"ecc_errors", c.ecc_errors},
                   {"mig", c.mig},
                   {"mps", c.mps},
                   {"compute_mode", static_cast<int>(c.compute_mode)},
                   {"hot_ns", look.hot_ns},
                   {"capped_ns", look.capped_ns}});
  }
  if (!c.known || !look.unknown_reason.empty()) fields["unknown_reason"] = look.unknown_reason;
  Put("conditions", fields);
}

void Trace::Put(const char* kind, Json fields) {
  if (fd_ < 0) return;
  fields.update(
      {{"kind", kind}, {"pid", getpid()}, {"unix_us", absl::ToUnixMicros(SystemClock().Now())}});
  const std::string line = device::ToLine(fields) + "\n";
  const ssize_t written = write(fd_, line.data(), line.size());
  if (written == static_cast<ssize_t>(line.size())) return;
  std::fprintf(stderr, "convtune-worker: %s: %s: %s; nothing more is traced\n", kVariable,
               path_.c_str(), written < 0 ? std::strerror(errno) : "the disk is full");
  close(fd_);
  fd_ = -1;
}

}  // namespace convtune::worker
