#include "client/cli/commands/release_fetch.h"

#include <algorithm>
#include <csignal>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <ostream>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "client/cli/output/atomic_file.h"
#include "client/cli/output/units.h"
#include "client/cli/output/value.h"
#include "convtune/v1/release_service.pb.h"
#include "db/snapshot/snapshot_file.h"
#include "proto/base/clock.h"
#include "proto/base/status_macros.h"

namespace convtune::cli::commands {
namespace {

constexpr absl::Duration kFetchRetry = absl::Milliseconds(500);
constexpr absl::Duration kStopPoll = absl::Milliseconds(100);
constexpr int64_t kMaxSnapshotBytes = int64_t{4} << 30;

volatile std::sig_atomic_t fetch_stopped = 0;

void StopFetching(int) { fetch_stopped = 1; }

void SleepUnlessStopped(absl::Duration time) {
  const SteadyTime end = SteadyTime::Now() + time;
  while (fetch_stopped == 0 && SteadyTime::Now() < end) {
    absl::SleepFor(std::min(kStopPoll, end - SteadyTime::Now()));
  }
}

bool MayComeYet(const absl::Status& status) {
  return absl::IsUnavailable(status) || absl::IsNotFound(status) || absl::IsAborted(status);
}

// Puts the daemon's snapshot in place where it is another one than `*version` (0: none is known),
// and says so. While it comes, no more than a piece of it is in memory.
absl::Status Fetch(app::Context& context, client::Client& client, const std::string& folder,
                   uint64_t* version) {
  const std::string path = absl::StrCat(folder, "/", snapshot::kSnapshotFile);
  std::unique_ptr<output::AtomicFile> file;
  int64_t size = 0;
  v1::ReadSnapshotRequest request;
  request.set_version(*version);
  while (true) {
    request.set_offset(size);
    ASSIGN_OR_RETURN(const v1::ReadSnapshotResponse piece,
                     client.Call<v1::ReadSnapshotResponse>(request));
    if (piece.size_bytes() > kMaxSnapshotBytes) {
      return absl::FailedPreconditionError(absl::StrCat("the snapshot has ", piece.size_bytes(),
                                                        " bytes, more than ", kMaxSnapshotBytes));
    }
    if (file == nullptr) {
      if (piece.chunk().empty()) return absl::OkStatus();  // it is that of *version
      std::error_code made;
      std::filesystem::create_directories(folder, made);
      ASSIGN_OR_RETURN(file, output::AtomicFile::Create(path, "FOLDER"));
    }
    RETURN_IF_ERROR(file->Write(piece.chunk()));
    size += static_cast<int64_t>(piece.chunk().size());
    request.set_version(piece.version());
    if (piece.chunk().empty() || size >= piece.size_bytes()) break;
  }
  // What a program would refuse must not replace what it has.
  snapshot::SnapshotFile read;
  const char* reason = "";
  if (!read.Read(file->temporary_path().c_str(), &reason)) {
    return absl::DataLossError(absl::StrCat("the snapshot that came is not sound: ", reason));
  }
  const snapshot::SnapshotView& view = read.view();
  RETURN_IF_ERROR(file->Commit());
  *version = request.version();
  uint64_t choices = 0;
  for (uint32_t i = 0; i < view.section_count(); ++i) choices += view.section(i).entry_count;
  context.PrintJson({{"file", path},
                     {"release", static_cast<int64_t>(view.header().release)},
                     {"choices", static_cast<int64_t>(choices)},
                     {"bytes", size}});
  context.io().out.flush();  // a reader of --watch waits for the line
  context.Say(absl::StrCat("wrote release ", view.header().release, " to ", path, ": ",
                           output::Counted(static_cast<int64_t>(choices), "choice"), ", ",
                           output::FormatBytes(size)));
  return absl::OkStatus();
}

}  // namespace

app::ExitCode FetchRelease(app::Context& context, client::Client& client, const std::string& folder,
                           absl::Duration wait, absl::Duration watch) {
  uint64_t version = 0;
  const auto fetch = [&] { return Fetch(context, client, folder, &version); };
  const bool watching = watch > absl::ZeroDuration();
  if (watching) {
    // The first process of a container would ignore a signal without a handler.
    std::signal(SIGTERM, StopFetching);
    std::signal(SIGINT, StopFetching);
  }
  const SteadyTime end = SteadyTime::Now() + wait;
  absl::Status status = fetch();
  while (!status.ok() && MayComeYet(status) && SteadyTime::Now() < end && fetch_stopped == 0) {
    SleepUnlessStopped(std::min(kFetchRetry, end - SteadyTime::Now()));
    status = fetch();
  }
  if (!watching) return status.ok() ? app::ExitCode::kDone : context.Fail(status);
  while (fetch_stopped == 0) {
    if (!status.ok()) context.Fail(status);
    SleepUnlessStopped(watch);
    if (fetch_stopped == 0) status = fetch();
  }
  return app::ExitCode::kDone;
}

}  // namespace convtune::cli::commands
