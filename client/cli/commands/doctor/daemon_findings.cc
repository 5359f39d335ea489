#include "client/cli/commands/doctor/findings.h"

#include <sys/un.h>
#include <map>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "client/cli/calls/answers.h"
#include "client/cli/output/units.h"
#include "db/snapshot/snapshot.h"
#include "proto/convert/record_codec.h"
#include "proto/model/environment.h"
#include "proto/model/tuning/ban.h"

namespace convtune::cli::commands::doctor {

namespace {

app::Findings ExamineBackups(const v1::BackupState& backups) {
  const std::string newest =
      backups.has_newest_time()
          ? absl::StrCat("the newest backup is of ", output::FormatTimestamp(backups.newest_time()))
          : "there is no backup yet";
  const std::string text = absl::StrCat(newest, ", one is due every ",
                                        absl::FormatDuration(FromProto(backups.interval())));
  if (!backups.error().empty()) {
    return app::Findings().Problem(
        absl::StrCat(text, "; ", backups.error()),
        absl::StrCat("mend that, and try it with `convtune db backup`: the ",
                     "schedule tries less and less often; the older copies in ", backups.folder(),
                     " stay"));
  }
  const std::string whole = absl::StrCat(text, ", in ", backups.folder());
  return backups.has_newest_time() ? app::Findings().Fine(whole)
                                   : app::Findings().Notice(whole, "ask again in a minute");
}

}  // namespace

app::Findings ExamineServer(const v1::ServerInfo& server, const std::string& own_version) {
  app::Findings findings;
  const std::vector<std::string> own = absl::StrSplit(own_version, '.');
  const std::vector<std::string> other = absl::StrSplit(server.version(), '.');
  const std::string versions =
      absl::StrCat("daemon ", server.version(), ", this program ", own_version);
  if (own[0] != other[0]) {
    findings.Problem(absl::StrCat(versions, ": they may not understand each other"),
                     "install both from one release");
  } else if (own != other) {
    findings.Notice(versions, "they understand each other; what only one has is not there");
  } else {
    findings.Fine(versions);
  }
  if (server.writable()) {
    findings.Fine(absl::StrCat("database in ", server.state_dir(), ": ", server.tuning_count(),
                               " tunings, ", output::FormatBytes(server.database_bytes())));
  } else {
    findings.Problem(
        absl::StrCat(
            "the disk below ", server.state_dir(), " takes no results",
            server.not_on_disk() > 0 ? absl::StrCat("; ", server.not_on_disk(), " wait") : ""),
        "make space there, check its permissions, and whether convtune.db was moved, "
        "deleted or replaced; until then results are lost when the daemon stops");
  }
  if (!server.put_aside().empty()) {
    findings.Notice(absl::StrCat("the database was damaged and put aside, and a new one began: ",
                                 absl::StrJoin(server.put_aside(), ", ")),
                    "import a bundle, or restore a backup; then move what was put aside elsewhere");
  }
  if (server.backups().has_interval()) findings.Add(ExamineBackups(server.backups()));
  if (server.metrics_state() == v1::METRICS_STATE_ON) {
    findings.Fine(absl::StrCat("metrics at ", server.metrics_url()));
  } else if (server.metrics_state() == v1::METRICS_STATE_OFF) {
    findings.push_back({app::Severity::kFine, "metrics are off",
                        "for them, start convtuned with --metrics-address"});
  } else if (server.metrics_state() == v1::METRICS_STATE_NOT_BUILT) {
    findings.Notice("this convtuned has no metrics", "build it where prometheus-cpp is installed");
  }
  return findings;
}

namespace {

// What does not work where this instrument failed its self-check; see SelfCheck in record.proto.
std::string ConsequenceOf(const std::string& instrument) {
  if (instrument == "clock") return "nothing is measured, and answers are HEURISTIC";
  if (instrument == "blocking_kernel") return "GPU times contain the time of launching";
  if (instrument == "caches") return "no times are taken with cold caches";
  if (instrument == "checker") return "results are not judged, and nothing is published";
  if (instrument == "captures") return "nothing is captured, and no replays are timed";
  return "such results are not judged, and not published";
}

void AddSelfCheck(const v1::Device& device, app::Findings* findings) {
  const v1::SelfCheck& check = device.self_check();
  if (!check.known()) return;
  const std::string subject = absl::StrCat("the self-check of ", device.name(), "'s worker");
  if (check.failed().empty()) {
    findings->Fine(absl::StrCat(subject, " found nothing wrong"));
    return;
  }
  std::vector<std::string> parts;
  app::Severity severity = app::Severity::kNotice;
  for (const std::string& instrument : check.failed()) {
    parts.push_back(absl::StrCat(instrument, " (", ConsequenceOf(instrument), ")"));
    if (instrument != "caches" && instrument != "captures") severity = app::Severity::kProblem;
  }
  findings->push_back(
      {severity,
       absl::StrCat(subject, " failed: ", absl::StrJoin(parts, "; "),
                    check.details().empty() ? "" : absl::StrCat("\n", check.details())),
       "see that no other program uses the GPU; the next worker checks itself again, but for a "
       "step that took a worker down, which a restart of convtuned tries again"});
}

}  // namespace

app::Findings ExamineDevices(const v1::ListDevicesResponse& devices) {
  app::Findings findings;
  for (const std::string& left_out : devices.left_out()) {
    findings.Notice(absl::StrCat("the daemon does without ", left_out),
                    "mend that and restart convtuned");
  }
  if (devices.devices().empty()) {
    findings.Notice("the daemon has no device: it answers what its database holds",
                    "it looks for a GPU again by itself, unless it was started with --devices "
                    "none; a device profile (--profile NAME) needs no GPU");
  }
  for (const v1::Device& device : devices.devices()) {
    const std::string reason = device.reason().empty() ? "" : absl::StrCat(": ", device.reason());
    if (device.state() == v1::DEVICE_STATE_UNAVAILABLE) {
      findings.Problem(absl::StrCat(device.name(), " cannot be used", reason),
                       "mend that and restart convtuned; its log says more");
    } else if (device.state() == v1::DEVICE_STATE_BACKING_OFF) {
      findings.Problem(absl::StrCat("the worker of ", device.name(), " died", reason),
                       "it is started again by itself; its deaths are in the daemon's log");
    } else {
      if (IsSimulated(device.environment())) {
        findings.Notice(
            absl::StrCat(device.name(), " (", device.environment(),
                         ") is a GPU made of software: its times say nothing about a card"),
            "start convtuned with convtune-worker to measure on a GPU");
      }
      const std::string works =
          absl::StrCat(device.name(), " (", device.environment(), ") works",
                       device.cudnn_folder().empty()
                           ? ""
                           : absl::StrCat(" with the cuDNN of ", device.cudnn_folder()));
      if (device.worker_deaths() == 0) {
        findings.Fine(works);
      } else {
        findings.Notice(
            absl::StrCat(works, "; its workers died ", device.worker_deaths(), " times"),
            "see the daemon's log for the candidates at fault");
      }
    }
    AddSelfCheck(device, &findings);
    if (!device.unblocked().empty()) {
      findings.Notice(
          absl::StrCat("the last tuning of ", device.name(), " has no blocking kernels before ",
                       device.unblocked(), ": its GPU times contain the time of launching"),
          "see that no profiler is attached to the worker; the next tuning tries them again");
    }
  }
  return findings;
}

app::Findings ExamineEnvironments(const v1::ListEnvironmentsResponse& environments) {
  app::Findings findings;
  std::vector<std::string> current;
  std::map<std::string, int> names;  // several cuDNN of one GPU have one: only their texts differ
  for (const v1::Environment& environment : environments.environments()) {
    if (environment.current()) ++names[environment.name()];
  }
  for (const v1::Environment& environment : environments.environments()) {
    if (environment.current()) {
      current.push_back(names[environment.name()] == 1 ? environment.name() : environment.text());
    } else if (environment.tuning_count() > 0) {
      findings.Notice(absl::StrCat(environment.tuning_count(), " tunings are for ",
                                   environment.text(), ", which no device has now"),
                      "tune again for the present one; `get --hints` shows the old answers");
    }
  }
  if (current.size() > 1) {
    findings.Notice(absl::StrCat("there are several environments: ", absl::StrJoin(current, ", ")),
                    "choose with --environment or CONVTUNE_ENVIRONMENT");
  }
  return findings;
}

app::Findings ExamineBans(const v1::ListBansResponse& bans) {
  int64_t changed = 0, holding = 0;
  std::vector<std::string> names;
  constexpr size_t kMostNamed = 5;
  for (const v1::Ban& ban : bans.bans()) {
    // One that came with convtune is worth a word only where it changes an answer.
    if (ban.tuning_count() != 0 || !ban.shipped()) ++holding;
    if (ban.tuning_count() == 0) continue;
    changed += ban.tuning_count();
    if (names.size() == kMostNamed) continue;
    names.push_back(BanNameAndReason(ban.name(), ban.fleet_ban(), ban.reason()));
  }
  if (holding == 0) return {};
  const std::string hold = output::Counted(holding, "ban holds", "bans hold");
  if (changed == 0) {
    return app::Findings().Fine(absl::StrCat(hold, "; no tuning has another winner for it"));
  }
  return app::Findings().Notice(
      absl::StrCat(hold, "; ", output::Counted(changed, "tuning has", "tunings have"),
                   " another winner for ", absl::StrJoin(names, ", ")),
      "see `convtune ban list`; `convtune ban delete` ends one that is needed no more, "
      "`convtune fleet ban delete` one of the fleet's, and `convtuned --no-errata` "
      "those that came with convtune");
}

app::Findings ExaminePublication(const v1::Publication& publication) {
  app::Findings findings;
  if (!publication.error().empty()) {
    findings.Problem(absl::StrCat("the snapshot in ", publication.folder(),
                                  " is not up to date: ", publication.error()),
                     "mend that; programs are served what the last one says until then");
  } else {
    findings.Fine(absl::StrCat("snapshot in ", publication.folder(), ": release ",
                               publication.release(), ", ", publication.choice_count(),
                               " choices"));
  }
  if (publication.carried_count() > 0) {
    findings.Problem(
        absl::StrCat(publication.carried_count(),
                     " choices of the snapshot are missing in the "
                     "database, which is new or was damaged"),
        "tune these problems again, or restore a backup; programs are served the old choices "
        "until then. To drop them, remove current.snapshot");
  }
  if (publication.waiting_changes() > 0) {
    findings.Notice(
        absl::StrCat(output::Counted(publication.waiting_changes(), "changed portfolio waits",
                                     "changed portfolios wait"),
                     " for a promotion"),
        "see `convtune release diff`, then `convtune release promote`");
  }
  if (publication.below_evidence_count() > 0) {
    findings.Notice(
        calls::NotPublishedWord(publication.below_evidence_count(), publication.publish_evidence()),
        "without the daemon nothing is answered for them, and `convtune run` does not serve them; "
        "measure them, or start convtuned with a lower --publish-evidence");
  }
  if (publication.wanted_elsewhere_count() > 0) {
    findings.Notice(
        absl::StrCat(publication.wanted_elsewhere_count(), " of ", publication.wanted_count(),
                     " problems that programs want are for environments that no device here has"),
        "see `convtune wanted` for which; often the programs load another cuDNN than the worker");
  }
  if (!publication.socket_error().empty()) {
    const size_t length = absl::StrCat(publication.folder(), "/", snapshot::kDatagramSocket).size();
    findings.Notice(absl::StrCat("nothing is learned from programs: ", publication.socket_error()),
                    absl::StrCat(length < sizeof(sockaddr_un::sun_path)
                                     ? "mend that and restart convtuned"
                                     : "start convtuned with a shorter --state-dir",
                                 "; programs are served all the same"));
  }
  if (publication.datagrams_malformed() > 0) {
    findings.Notice(
        absl::StrCat(publication.datagrams_malformed(), " of ", publication.datagrams_received(),
                     " reports of programs could not be read"),
        "update the interposer or the daemon; both should be of one release");
  }
  return findings;
}

namespace {

app::Severity SeverityOf(CudnnState state) {
  if (state == CudnnState::kWhole) return app::Severity::kFine;
  const bool loads = state == CudnnState::kForJitAlone || state == CudnnState::kUnknown;
  return loads ? app::Severity::kNotice : app::Severity::kProblem;
}

// Whether the daemon has answers for programs with that cuDNN.
app::Findings ExamineEnvironmentOf(const LoadedCudnn& cudnn,
                                   const v1::ListEnvironmentsResponse& environments) {
  const bool full = HasPrecompiled(cudnn);
  const auto configuration =
      full ? v1::LIBRARY_CONFIGURATION_FULL : v1::LIBRARY_CONFIGURATION_GRAPH_JIT_ONLY;
  std::vector<std::string> current, past;
  for (const v1::Environment& environment : environments.environments()) {
    if (environment.cudnn_version() != cudnn.version ||
        environment.library_configuration() != configuration) {
      continue;
    }
    (environment.current() ? current : past).push_back(environment.name());
  }
  const std::string version =
      absl::StrCat("cuDNN ", cudnn.version, full ? "" : " without precompiled engines");
  if (!current.empty()) {
    return app::Findings().Fine(
        absl::StrCat("the daemon tunes for ", version, ": ", absl::StrJoin(current, ", ")));
  }
  return app::Findings().Notice(
      absl::StrCat("no device of the daemon has ", version,
                   past.empty()
                       ? ", and no tuning is for it: the program gets no answers"
                       : absl::StrCat("; tunings for it are of ", absl::StrJoin(past, ", "))),
      absl::StrCat("start the daemon with --cudnn-of ", cudnn.folder));
}

}  // namespace

app::Findings ExamineProgram(const std::string& program, const std::vector<LoadedCudnn>& found,
                             const v1::ListEnvironmentsResponse* environments) {
  if (found.empty()) {
    return app::Findings().Notice(absl::StrCat(program, " has no package that loads cuDNN"),
                                  "name the Python in which torch or onnxruntime-gpu is installed");
  }
  app::Findings findings;
  std::set<std::string> said;  // two packages may load the same
  for (const LoadedCudnn& cudnn : found) {
    if (cudnn.folder.empty()) {
      findings.Notice(
          absl::StrCat(cudnn.by, " finds no libcudnn.so.9 by itself"),
          "say where it is with LD_LIBRARY_PATH; onnxruntime.preload_dlls() loads the wheel's");
      continue;
    }
    const CudnnExamination examined = ExamineCudnn(cudnn);
    findings.push_back({SeverityOf(examined.state), examined.what, examined.advice});
    if (environments == nullptr || cudnn.version.empty() || examined.state == CudnnState::kOlder ||
        !said.insert(cudnn.folder).second) {
      continue;
    }
    findings.Add(ExamineEnvironmentOf(cudnn, *environments));
  }
  return findings;
}

}  // namespace convtune::cli::commands::doctor
