#include "client/cli/commands/doctor/findings.h"

#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/timex.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/cli/commands/run/run.h"
#include "client/cli/output/units.h"
#include "db/snapshot/snapshot.h"
#include "proto/base/clock.h"
#include "proto/convert/record_codec.h"
#include "proto/model/text.h"

namespace convtune::cli::commands::doctor {
namespace {

// With less space than this even an empty database has no room for its write-ahead log and a
// backup.
constexpr int64_t kLeastFree = int64_t{64} << 20;
constexpr absl::Duration kClockSlack = absl::Seconds(2);
// An agent asks at least every ten seconds, unless --refresh says otherwise.
constexpr absl::Duration kAgentSilence = absl::Minutes(1);
// Before cuDNN 9.8 nothing works without a GPU, and lists are shorter.
constexpr int kCudnnMajor = 9;
constexpr int kCudnnMinor = 8;

SeenFile See(const std::string& path, int mode) {
  return {path, access(path.c_str(), mode) == 0 ? 0 : errno};
}

// See SeenFile::owner_only.
std::string FindOwnerOnly(const std::string& path) {
  mode_t wanted = S_IRGRP | S_IROTH;
  for (std::filesystem::path at = path; at.has_relative_path(); at = at.parent_path()) {
    struct stat found {};
    if (stat(at.c_str(), &found) == 0 && (found.st_mode & wanted) == 0) {
      return absl::StrFormat("%s has mode %04o", at.string(), found.st_mode & 07777);
    }
    wanted = S_IXGRP | S_IXOTH;
  }
  return "";
}

}  // namespace

MachineFacts LookAtMachine(const v1::ServerInfo& server, const v1::Publication& publication,
                           bool here) {
  MachineFacts facts;
  facts.now = SystemClock().Now();
  timex clock{};
  const int state = adjtimex(&clock);
  if (state >= 0) facts.clock_kept = state != TIME_ERROR && (clock.status & STA_UNSYNC) == 0;
  if (const auto library = run::FindPreloadLibrary(); library.ok()) {
    facts.library = *library;
  }
  struct statvfs disk {};
  // One that is relative is so to the daemon's folder.
  if (here && !server.state_dir().empty() && server.state_dir()[0] == '/' &&
      statvfs(server.state_dir().c_str(), &disk) == 0) {
    facts.disk_free = static_cast<int64_t>(disk.f_bavail) * static_cast<int64_t>(disk.f_frsize);
  }
  const char* chosen = std::getenv("CONVTUNE_SNAPSHOT");
  const std::string folder = chosen != nullptr ? chosen : publication.folder();
  if (folder.empty() || (chosen == nullptr && !here)) return facts;
  facts.snapshot = See(absl::StrCat(folder, "/", snapshot::kSnapshotFile), R_OK);
  if (geteuid() == 0) facts.snapshot->owner_only = FindOwnerOnly(facts.snapshot->path);
  facts.report_socket = See(absl::StrCat(folder, "/", snapshot::kDatagramSocket), W_OK);
  const std::string kill_switch = absl::StrCat(folder, "/", snapshot::kKillSwitchFile);
  const char* off = std::getenv("CONVTUNE_PRELOAD_OFF");
  if (off != nullptr && std::strcmp(off, "1") == 0) {
    facts.switched_off = "CONVTUNE_PRELOAD_OFF";
  } else if (access(kill_switch.c_str(), F_OK) == 0) {
    facts.switched_off = kill_switch;
  }
  return facts;
}

app::Findings ExamineDisk(const v1::ServerInfo& server, const MachineFacts& facts) {
  if (!facts.disk_free) return {};
  const std::string what = absl::StrCat("the disk of ", server.state_dir(), " has ",
                                        output::FormatBytes(*facts.disk_free), " free");
  if (*facts.disk_free < kLeastFree) {
    return app::Findings().Problem(
        what, "make space: results are kept in memory only once the disk refuses them");
  }
  if (*facts.disk_free < server.database_bytes()) {
    return app::Findings().Notice(
        absl::StrCat(what, ", less than the database itself"),
        "make space before `convtune db compact`, or a backup there; --max-db-size bounds the "
        "database");
  }
  return app::Findings().Fine(what);
}

app::Findings ExamineClock(const v1::ServerInfo& server, const MachineFacts& facts) {
  const absl::Time started = FromProto(server.start_time());
  if (started > facts.now + kClockSlack) {
    return app::Findings().Problem(
        absl::StrCat("the daemon started ", absl::FormatDuration(started - facts.now),
                     " in the future, by this clock"),
        "set the clock: ages, the ends of pins and which tuning is newer depend on it");
  }
  if (facts.clock_kept.has_value() && !*facts.clock_kept) {
    return app::Findings().Notice(
        "nothing keeps the clock right",
        "let chrony or systemd-timesyncd keep it; ages of answers and of pins are told by it");
  }
  return app::Findings().Fine("the clock is right, as far as can be seen");
}

app::Findings ExamineInterposer(const MachineFacts& facts) {
  app::Findings findings;
  if (facts.library.empty()) {
    findings.Notice(absl::StrCat(run::kPreloadLibrary, " is not installed here"),
                    "unmodified programs need it: install convtune's libraries beside this "
                    "program, in their image");
  }
  if (!facts.switched_off.empty()) {
    findings.Notice(absl::StrCat("unmodified programs are served nothing, by ", facts.switched_off),
                    "take it away to serve them again");
  }
  if (!facts.snapshot) return findings;
  if (facts.snapshot->error != 0) {
    const bool missing = facts.snapshot->error == ENOENT || facts.snapshot->error == ENOTDIR;
    const std::string folder = facts.snapshot->path.substr(0, facts.snapshot->path.rfind('/'));
    findings.Notice(
        absl::StrCat("programs here cannot read ", facts.snapshot->path, ": ",
                     std::strerror(facts.snapshot->error)),
        missing ? absl::StrCat("say where the snapshot's folder is with CONVTUNE_SNAPSHOT; in a "
                               "container, mount the daemon's folder read-only at ",
                               folder)
                : absl::StrCat("let the program's user read ", folder));
    return findings;
  }
  findings.Fine(absl::StrCat("programs here can read ", facts.snapshot->path));
  if (!facts.snapshot->owner_only.empty()) {
    findings.Notice(absl::StrCat("programs of other users cannot: ", facts.snapshot->owner_only),
                    "let the programs' group through (chmod g+x for a folder), unless all of them "
                    "run as its owner or reach the snapshot through a mount");
  }
  if (facts.report_socket && facts.report_socket->error != 0) {
    findings.Notice(
        absl::StrCat("what programs here miss is not learned: ", facts.report_socket->path, ": ",
                     std::strerror(facts.report_socket->error)),
        "a mount that is read-only keeps reports away too; programs are served all "
        "the same");
  }
  return findings;
}

app::Findings ExamineLibraries(const v1::ListEnvironmentsResponse& environments) {
  app::Findings findings;
  for (const v1::Environment& environment : environments.environments()) {
    if (!environment.current()) continue;
    const v1::Provenance& from = environment.provenance();
    const std::vector<int> cudnn = VersionNumbers(environment.cudnn_version());
    const std::string what =
        absl::StrCat(environment.name(), ": ",
                     from.driver_version().empty()
                         ? ""
                         : absl::StrCat("driver for CUDA ", from.driver_version(), ", "),
                     "CUDA ", from.cuda_version(), ", cuDNN ", environment.cudnn_version());
    if (cudnn.size() >= 2 &&
        (cudnn[0] < kCudnnMajor || (cudnn[0] == kCudnnMajor && cudnn[1] < kCudnnMinor))) {
      findings.Problem(what, "install cuDNN 9.8 or later");
    } else if (environment.library_configuration() == v1::LIBRARY_CONFIGURATION_GRAPH_JIT_ONLY) {
      findings.Notice(absl::StrCat(what, " without its precompiled engines"),
                      "programs with the full cuDNN have another environment; install the same "
                      "package for both");
    } else {
      findings.Fine(what);
    }
  }
  return findings;
}

app::Findings ExamineFleet(const v1::FleetState& state) {
  if (state.outbox_dropped() > 0) {
    return app::Findings().Notice(
        absl::StrCat(state.outbox_dropped(), " tunings were dropped before the fleet took them"),
        "if there is a fleet, see to its agent, then `convtune fleet status`");
  }
  if (state.outbox_refused() > 0) {
    return app::Findings().Notice(
        absl::StrCat(state.outbox_refused(), " tunings were refused by the fleet, ", "the last of ",
                     state.last_refused()),
        "the log of `convtune-fleet agent` names each; `convtune tune --force` "
        "makes them anew");
  }
  const absl::Duration silence = FromProto(state.agent_silence());
  if (silence <= kAgentSilence && !state.agent_trouble().empty()) {
    return app::Findings().Notice(
        absl::StrCat("the fleet's agent of this node: ", state.agent_trouble()),
        "see its log, and `convtune fleet status`; the node serves on what it has");
  }
  if (state.release() == 0) return app::Findings().Fine("no release of a fleet is followed");
  if (silence > kAgentSilence) {
    return app::Findings().Notice(
        absl::StrCat("fleet release ", state.release(), "; no agent has asked for ",
                     output::FormatAge(silence)),
        "start `convtune-fleet agent` on this node, or see its log; the node serves on what it "
        "has");
  }
  if (state.outbox_depth() > 0) {
    return app::Findings().Notice(
        absl::StrCat("fleet release ", state.release(), "; ", state.outbox_depth(),
                     " tunings wait to be delivered"),
        "if that does not go down, see the log of `convtune-fleet agent`");
  }
  return app::Findings().Fine(
      absl::StrCat("fleet release ", state.release(), "; nothing waits to be delivered"));
}

}  // namespace convtune::cli::commands::doctor
