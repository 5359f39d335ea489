#include "client/cli/commands/run/run.h"

#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <CLI/CLI.hpp>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/cli/input/options.h"
#include "client/cli/output/fields.h"
#include "db/snapshot/snapshot_file.h"
#include "proto/base/errors.h"
#include "proto/base/status_macros.h"

namespace convtune::cli::commands::run {
namespace {

// The signals that the program gets from this one.
constexpr int kSignals[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGALRM};

int WaitPassingSignals(pid_t child, const sigset_t& signals) {
  while (true) {
    int status = 0;
    if (waitpid(child, &status, WNOHANG) == child) return status;
    siginfo_t info{};
    const int signal = sigwaitinfo(&signals, &info);
    // A terminal's go to every process in front of it by themselves.
    if (signal > 0 && signal != SIGCHLD && info.si_code != SI_KERNEL) kill(child, signal);
  }
}

[[noreturn]] void Exec(std::vector<std::string> command, const Variables& variables,
                       const sigset_t& mask, int report_fd) {
  for (const auto& [name, value] : variables) setenv(name.c_str(), value.c_str(), 1);
  sigprocmask(SIG_SETMASK, &mask, nullptr);
  execvp(command[0].c_str(), PointersTo(&command).data());
  const int error = errno;
  [[maybe_unused]] const ssize_t written = write(report_fd, &error, sizeof error);
  _exit(127);
}

// The errno of the exec that failed; 0 if it did not.
int ReadExecError(int fd) {
  int error = 0;
  ssize_t size = 0;
  do {
    size = read(fd, &error, sizeof error);
  } while (size < 0 && errno == EINTR);
  return size == sizeof error ? error : 0;
}

// The exit codes with which shells say that a program is not there, or cannot be run.
constexpr int kNotFound = 127;
constexpr int kNotRunnable = 126;

// Separate the names in LD_PRELOAD, which cannot be quoted.
constexpr char kSeparators[] = " :";

// What a run needs on disk, until it ends: the file of the counters, which only
// this user can write to, and links to libraries.
class RunFolder {
 public:
  RunFolder() {
    const char* const chosen = getenv("TMPDIR");
    for (std::string pattern : {chosen != nullptr ? chosen : "", "/tmp"}) {
      if (pattern[0] != '/' || pattern.find_first_of(kSeparators) != std::string::npos) continue;
      if (trouble_.starts_with(pattern + ": ")) continue;
      absl::StrAppend(&trouble_, trouble_.empty() ? "" : ", ", pattern, ": ");
      pattern += "/convtune-run-XXXXXX";
      if (mkdtemp(pattern.data()) != nullptr) {
        path_ = pattern;
        break;
      }
      trouble_ += std::strerror(errno);
    }
    if (path_.empty()) return;
    const int fd = open((path_ + "/counters").c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    if (fd >= 0) close(fd);
    chmod(path_.c_str(), 0755);  // the program may become another user
  }
  ~RunFolder() { Remove(); }
  RunFolder(const RunFolder&) = delete;
  RunFolder& operator=(const RunFolder&) = delete;

  // Empty if none could be made; `trouble` says why.
  std::string counters() const { return path_.empty() ? "" : path_ + "/counters"; }
  const std::string& trouble() const { return trouble_; }
  // `library`, or a link to it if the dynamic linker could not read its path.
  std::string Reachable(const std::string& library) const {
    if (path_.empty() || library.find_first_of(kSeparators) == std::string::npos) return library;
    const std::string link = path_ + library.substr(library.rfind('/'));
    std::error_code error;
    std::filesystem::create_symlink(std::filesystem::absolute(library), link, error);
    return error ? library : link;
  }
  void Remove() {
    std::error_code ignored;
    if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
  }

 private:
  std::string path_;
  std::string trouble_;  // the folders that were tried, with the system's words
};

class RunCommand final : public app::Command {
 public:
  void Register(CLI::App& root) override {
    CLI::App* app = AddVerb(root, "run", "run a program that gets the stored choices");
    app->add_option("--policy", policy_, "observe, reorder or truncate; without it reorder")
        ->check(CLI::IsMember({"observe", "reorder", "truncate"}));
    app->add_option("--allow", allow_, "what may differ from stock: notes, workspace")
        ->delimiter(',')
        ->allow_extra_args(false)
        ->check(CLI::IsMember({"notes", "workspace"}));
    input::AddBytes(*app, "--max-workspace",
                    "largest workspace of what the program is offered, such as 256MiB, of cuDNN's "
                    "own choices too",
                    [this](int64_t bytes) { max_workspace_ = bytes; });
    app->add_option("--snapshot", snapshot_,
                    "folder of the snapshot, or the daemon's state directory; without it "
                    "$CONVTUNE_SNAPSHOT, else the first with a "
                    "snapshot of $STATE_DIRECTORY/snapshot, this user's "
                    "~/.local/state/convtune/snapshot and /var/lib/convtune/snapshot")
        ->type_name("DIR");
    app->add_option("--library", library_, "the library libconvtune_preload.so")->type_name("FILE");
    // LD_AUDIT, which programs that look cuDNN up needed before.
    app->add_flag("--audit")->group("");
    app->add_flag("--quiet", quiet_, "say nothing at the end");
    app->add_option("command", command_, "the program and its arguments, behind --")
        ->type_name("PROGRAM...")
        ->required();
  }

  absl::StatusOr<app::ExitCode> Run(app::Context& context) override {
    Variables variables;
    RunFolder folder;
    ASSIGN_OR_RETURN(const std::string looked_in, SetVariables(context, folder, &variables));
    const std::string file = absl::StrCat(looked_in, "/", snapshot::kSnapshotFile);
    if (const std::string trouble = SnapshotTrouble(file); !trouble.empty() && !quiet_) {
      context.Say("convtune: ", trouble, "; the program gets nothing from convtune");
    }
    if (folder.counters().empty() && !quiet_) {
      context.Say("convtune: no folder can be made for the counters of this run (",
                  folder.trouble(), "); what the program gets is not counted");
    }
    const auto end = RunProgramAndWait(command_, variables);
    if (!end.ok()) {
      context.SayError(end.status().message());
      return static_cast<app::ExitCode>(absl::IsNotFound(end.status()) ? kNotFound : kNotRunnable);
    }
    Report(context, folder.counters(), file);
    if (!WIFSIGNALED(*end)) return static_cast<app::ExitCode>(WEXITSTATUS(*end));
    // Whoever waits for this program is to see how the other one ended.
    context.io().err.flush();
    folder.Remove();
    signal(WTERMSIG(*end), SIG_DFL);
    raise(WTERMSIG(*end));
    constexpr int kSignalBase = 128;
    return static_cast<app::ExitCode>(kSignalBase + WTERMSIG(*end));
  }

 private:
  // Sets the variables that the program gets. Returns the folder in which its processes look for
  // the snapshot.
  absl::StatusOr<std::string> SetVariables(app::Context& context, const RunFolder& folder,
                                           Variables* variables) const {
    std::string library = library_;
    if (library.empty()) {
      ASSIGN_OR_RETURN(library, FindPreloadLibrary());
    } else if (access(library.c_str(), R_OK) != 0) {
      return InvalidArgument("--library: ", library, " cannot be read");
    }
    const std::string others = context.io().env("LD_PRELOAD").value_or("");
    variables->emplace_back(
        "LD_PRELOAD", absl::StrCat(folder.Reachable(library), others.empty() ? "" : ":", others));
    if (!policy_.empty()) variables->emplace_back("CONVTUNE_PRELOAD_POLICY", policy_);
    if (!allow_.empty()) {
      variables->emplace_back("CONVTUNE_PRELOAD_ALLOW", absl::StrJoin(allow_, ","));
    }
    if (max_workspace_) {
      variables->emplace_back("CONVTUNE_PRELOAD_MAX_WORKSPACE", absl::StrCat(*max_workspace_, "B"));
    }
    // Said to the processes in any case, so that they look where this program says that they do.
    std::string folder_of_snapshot = context.io().env("CONVTUNE_SNAPSHOT").value_or("");
    if (!snapshot_.empty()) {
      char real[PATH_MAX];
      if (realpath(snapshot_.c_str(), real) == nullptr) {
        return InvalidArgument("--snapshot: there is no folder ", snapshot_);
      }
      folder_of_snapshot = real;
      // The daemon's state directory, in which the folder is.
      if (const std::string inside = absl::StrCat(real, "/snapshot");
          !HasSnapshot(folder_of_snapshot) && HasSnapshot(inside)) {
        folder_of_snapshot = inside;
      }
    } else if (folder_of_snapshot.empty()) {
      folder_of_snapshot = snapshot::FindSnapshotFolder().path;
    }
    variables->emplace_back("CONVTUNE_SNAPSHOT", folder_of_snapshot);
    // A file of its own: CONVTUNE_PRELOAD_COUNTERS is the user's.
    if (const std::string counters = folder.counters(); !counters.empty()) {
      variables->emplace_back("CONVTUNE_RUN_COUNTERS", counters);
    }
    return folder_of_snapshot;
  }

  static bool HasSnapshot(const std::string& folder) {
    return access(absl::StrCat(folder, "/", snapshot::kSnapshotFile).c_str(), F_OK) == 0;
  }

  // Why processes get nothing from the file; empty if they do.
  static std::string SnapshotTrouble(const std::string& path) {
    const auto none = [&path](const std::string& why) {
      return absl::StrCat("no snapshot: ", path, ": ", why);
    };
    if (access(path.c_str(), F_OK) != 0) {
      return none(absl::StrCat(std::strerror(errno),
                               "; name its folder with --snapshot or CONVTUNE_SNAPSHOT; `convtune "
                               "doctor` prints it"));
    }
    snapshot::SnapshotFile file;
    const char* reason = "";
    if (!file.Read(path.c_str(), &reason)) return none(reason);
    const snapshot::SnapshotView& view = file.view();
    for (uint32_t i = 0; i < view.section_count(); ++i) {
      if (view.section(i).entry_count > 0) return "";
    }
    return absl::StrCat(path, ": the snapshot holds 0 choices");
  }

  void Report(app::Context& context, const std::string& path, const std::string& snapshot) const {
    std::ifstream file(path);
    const PreloadCounters counters = ReadPreloadCounters(file);
    if (context.format() == app::Format::kJson) {
      output::Fields missed;
      for (const auto& [reason, count] : counters.missed) missed.push_back({reason, count});
      const auto fields_of = [](const PreloadProcess& process) -> output::Fields {
        return {{"pid", "", process.pid},
                {"name", "", process.name},
                {"reached", "", process.reached},
                {"served", "", process.served},
                {"missed", "", process.missed}};
      };
      context.Say(output::JsonRow({{"processes", counters.processes},
                                   {"served", counters.Sum("served")},
                                   {"missed", output::JsonRow(missed)},
                                   {"learned", counters.Sum("learned")},
                                   {"observed", counters.Sum("observed")},
                                   {"passed", counters.Sum("passed")},
                                   {"dropped", counters.Sum("dropped")},
                                   {"overLimit", counters.Sum("over_limit")},
                                   {"errata", counters.Sum("errata")},
                                   {"bypassed", counters.bypassed},
                                   {"each", output::JsonRows(counters.each, fields_of)},
                                   {"snapshot", snapshot},
                                   {"noSnapshot", absl::StrJoin(counters.no_snapshot, ", ")},
                                   {"counted", !path.empty()}})
                      .text);
    } else if (!quiet_ && !path.empty()) {
      for (const std::string& line : Describe(counters, snapshot)) {
        context.Say("convtune: ", line);
      }
    }
  }

  std::string policy_, snapshot_, library_;
  std::optional<int64_t> max_workspace_;
  std::vector<std::string> allow_, command_;
  bool quiet_ = false;
};

}  // namespace

absl::StatusOr<int> RunProgramAndWait(const std::vector<std::string>& command,
                                      const Variables& variables) {
  int report[2];
  if (pipe2(report, O_CLOEXEC) != 0) {
    return absl::ErrnoToStatus(errno, "pipe");
  }
  sigset_t signals, before;
  sigemptyset(&signals);
  for (const int signal : kSignals) sigaddset(&signals, signal);
  sigaddset(&signals, SIGCHLD);
  sigprocmask(SIG_BLOCK, &signals, &before);
  // Not posix_spawn: glibc's leaves the signals 32 and 33 ignored in the program.
  const pid_t child = fork();
  if (child == 0) Exec(command, variables, before, report[1]);
  const int fork_error = errno;
  close(report[1]);
  const int exec_error = child > 0 ? ReadExecError(report[0]) : 0;
  close(report[0]);
  absl::StatusOr<int> end = 0;
  if (child > 0) {
    end = WaitPassingSignals(child, signals);
  } else {
    end = absl::ErrnoToStatus(fork_error, "fork");
  }
  sigprocmask(SIG_SETMASK, &before, nullptr);
  return exec_error == 0 ? end : absl::ErrnoToStatus(exec_error, command[0]);
}

std::unique_ptr<app::Command> NewRunCommand() { return std::make_unique<RunCommand>(); }

}  // namespace convtune::cli::commands::run
