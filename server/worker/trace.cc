#include "server/worker/trace.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "server/worker/device/device_profile.h"

namespace convtune::worker {
namespace {

// JSON has no numbers for what is not finite.
std::string Number(double value) {
  if (std::isnan(value)) return "\"nan\"";
  if (std::isinf(value)) return value > 0 ? "\"inf\"" : "\"-inf\"";
  char text[32];
  std::snprintf(text, sizeof(text), "%.9g", value);
  return text;
}

const char* Truth(bool value) { return value ? "true" : "false"; }

std::string Of(int index, const CandidateId& id) {
  return absl::StrCat(",\"index\":", index, ",\"candidate\":", device::JsonQuote(ToText(id)));
}

std::string Times(const TimedRun& run) {
  return absl::StrCat("\"gpu_us\":", Number(run.gpu_us), ",\"host_us\":", Number(run.host_us));
}

std::string StampText(const Stamp& stamp) {
  return absl::StrCat("[", stamp.timer_ns, ",", stamp.cycles, "]");
}

const char* CaptureText(CaptureSupport capture) {
  switch (capture) {
    case CaptureSupport::kYes:
      return "yes";
    case CaptureSupport::kNo:
      return "no";
    case CaptureSupport::kUnknown:
      break;
  }
  return "unknown";
}

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
  Put("worker", absl::StrCat(",\"trace\":", kFormatVersion,
                             ",\"environment\":", device::JsonQuote(environment.ToText()),
                             ",\"driver_version\":", device::JsonQuote(provenance.driver_version),
                             ",\"cuda_version\":", device::JsonQuote(provenance.cuda_version),
                             ",\"cublaslt_build\":", device::JsonQuote(provenance.cublaslt_build),
                             ",\"nvrtc_build\":", device::JsonQuote(provenance.nvrtc_build),
                             ",\"gpu_uuid\":", device::JsonQuote(provenance.gpu_uuid)));
}

void Trace::PutProblem(const std::string& text) {
  Put("problem", absl::StrCat(",\"problem\":", device::JsonQuote(text)));
}

void Trace::PutPrepared(int index, const CandidateId& id,
                        const absl::StatusOr<PreparedCandidate>& prepared, absl::Duration took) {
  std::string fields =
      absl::StrCat(Of(index, id), ",\"took_us\":", Number(absl::ToDoubleMicroseconds(took)));
  if (prepared.ok()) {
    absl::StrAppend(&fields, ",\"workspace_bytes\":", prepared->workspace_bytes,
                    ",\"over_memory\":", Truth(prepared->over_memory));
  } else {
    absl::StrAppend(&fields,
                    ",\"failure\":", device::JsonQuote(std::string(prepared.status().message())));
  }
  Put("prepared", fields);
}

void Trace::PutChecked(int index, const CandidateId& id,
                       const absl::StatusOr<CheckedRun>& checked) {
  std::string fields = Of(index, id);
  if (!checked.ok()) {
    absl::StrAppend(&fields,
                    ",\"failure\":", device::JsonQuote(std::string(checked.status().message())));
    Put("check", fields);
    return;
  }
  absl::StrAppend(&fields, ",\"error\":", checked->error ? Number(*checked->error) : "null",
                  ",\"magnitude\":", Number(checked->magnitude),
                  ",\"nonfinite\":", checked->nonfinite,
                  ",\"out_of_bounds\":", device::JsonQuote(checked->out_of_bounds),
                  ",\"capture\":\"", CaptureText(checked->capture),
                  "\",\"capture_refusal\":", device::JsonQuote(checked->capture_refusal));
  absl::StrAppend(&fields, ",\"first\":{", Times(checked->first), "}");
  if (!checked->hopeless) absl::StrAppend(&fields, ",\"second\":{", Times(checked->run), "}");
  Put("check", fields);
}

void Trace::PutSample(int index, const CandidateId& id, int round, const RunMode& mode,
                      const absl::StatusOr<TimedRun>& run) {
  std::string fields = absl::StrCat(Of(index, id), ",\"round\":", round, ",\"launch\":\"",
                                    std::string(Name(mode.launch)), "\",\"cache_state\":\"",
                                    std::string(Name(mode.cache_state)), "\"");
  if (!run.ok()) {
    absl::StrAppend(&fields,
                    ",\"failure\":", device::JsonQuote(std::string(run.status().message())));
    Put("sample", fields);
    return;
  }
  absl::StrAppend(&fields, ",\"runs\":", run->runs, ",", Times(*run),
                  ",\"sm_clock_mhz\":", Number(run->sm_clock_mhz),
                  ",\"blocked\":", Truth(run->blocked), ",\"gave_up\":", run->gave_up,
                  ",\"stamps\":[", StampText(run->stamps[0]), ",", StampText(run->stamps[1]), "]");
  Put("sample", fields);
}

void Trace::PutConditions(const ConditionsLook& look) {
  const Conditions& c = look.conditions;
  if (!c.known) {
    Put("conditions", absl::StrCat(",\"known\":false,\"unknown_reason\":",
                                   device::JsonQuote(look.unknown_reason)));
    return;
  }
  std::string fields = absl::StrCat(",\"known\":true,\"other_processes\":", c.other_processes,
                                    ",\"clock_reasons\":", c.clock_reasons,
                                    ",\"power_limit_watts\":", Number(c.power_limit_watts),
                                    ",\"temperature_celsius\":", c.temperature_celsius,
                                    ",\"ecc_errors\":", c.ecc_errors, ",\"mig\":", Truth(c.mig),
                                    ",\"mps\":", Truth(c.mps),
                                    ",\"compute_mode\":", static_cast<int>(c.compute_mode),
                                    ",\"hot_ns\":", look.hot_ns, ",\"capped_ns\":", look.capped_ns);
  if (!look.unknown_reason.empty()) {
    absl::StrAppend(&fields, ",\"unknown_reason\":", device::JsonQuote(look.unknown_reason));
  }
  Put("conditions", fields);
}

void Trace::Put(const char* kind, const std::string& fields) {
  if (fd_ < 0) return;
  const std::string line =
      absl::StrCat("{\"kind\":\"", kind, "\",\"pid\":", getpid(),
                   ",\"unix_us\":", absl::ToUnixMicros(absl::Now()), fields, "}\n");
  const ssize_t written = write(fd_, line.data(), line.size());
  if (written == static_cast<ssize_t>(line.size())) return;
  std::fprintf(stderr, "convtune-worker: %s: %s: %s; nothing more is traced\n", kVariable,
               path_.c_str(), written < 0 ? std::strerror(errno) : "the disk is full");
  close(fd_);
  fd_ = -1;
}

}  // namespace convtune::worker
