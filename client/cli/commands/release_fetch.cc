#include "client/cli/commands/release_fetch.h"

#include <algorithm>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <memory>
#include <ostream>
#include <system_error>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "client/cli/output/atomic_file.h"
#include "client/cli/output/json.h"
#include "client/cli/output/units.h"
#include "db/snapshot/snapshot.h"
#include "proto/base/status_macros.h"

namespace convtune::cli {
namespace {

constexpr absl::Duration kFetchRetry = absl::Milliseconds(500);
constexpr absl::Duration kStopPoll = absl::Milliseconds(100);
constexpr int64_t kMaxSnapshotBytes = int64_t{4} << 30;

volatile std::sig_atomic_t fetch_stopped = 0;

void StopFetching(int) { fetch_stopped = 1; }

void SleepUnlessStopped(absl::Duration time) {
  const absl::Time end = absl::Now() + time;
  while (fetch_stopped == 0 && absl::Now() < end) {
    absl::SleepFor(std::min(kStopPoll, end - absl::Now()));
  }
}

// The whole file, or nothing where the daemon's is still that of `version`.
absl::StatusOr<std::string> ReadAll(ReleaseClient& client, uint64_t* version) {
  std::string bytes;
  v1::ReadSnapshotRequest request;
  request.set_version(*version);
  while (true) {
    request.set_offset(static_cast<int64_t>(bytes.size()));
    ASSIGN_OR_RETURN(const v1::ReadSnapshotResponse piece, client.ReadSnapshot(request));
    if (piece.size_bytes() > kMaxSnapshotBytes) {
      return absl::FailedPreconditionError(absl::StrCat("the snapshot has ", piece.size_bytes(),
                                                        " bytes, more than ", kMaxSnapshotBytes));
    }
    bytes += piece.chunk();
    request.set_version(piece.version());
    if (piece.chunk().empty() || static_cast<int64_t>(bytes.size()) >= piece.size_bytes()) {
      *version = piece.version();
      return bytes;
    }
  }
}

bool MayComeYet(const absl::Status& status) {
  return absl::IsUnavailable(status) || absl::IsNotFound(status) || absl::IsAborted(status);
}

}  // namespace

absl::Status ReleaseFetch::Write(Context& context, uint64_t version, const std::string& bytes) {
  // What a program would refuse must not replace what it has.
  std::vector<uint64_t> words((bytes.size() + 7) / 8);
  std::memcpy(words.data(), bytes.data(), bytes.size());
  snapshot::SnapshotView view;
  const snapshot::SnapshotError error =
      snapshot::SnapshotView::Open(words.data(), bytes.size(), &view);
  if (error != snapshot::SnapshotError::kNone) {
    return absl::DataLossError(
        absl::StrCat("the snapshot that came is not sound: ", snapshot::Describe(error)));
  }
  std::error_code made;
  std::filesystem::create_directories(folder_, made);
  const std::string path = absl::StrCat(folder_, "/", snapshot::kSnapshotFile);
  ASSIGN_OR_RETURN(const std::unique_ptr<AtomicFile> file, AtomicFile::Create(path, "FOLDER"));
  RETURN_IF_ERROR(file->Write(bytes));
  RETURN_IF_ERROR(file->Commit());
  version_ = version;
  uint64_t choices = 0;
  for (uint32_t i = 0; i < view.section_count(); ++i) choices += view.section(i).entry_count;
  if (context.format() == Format::kJson) {
    context.io().out << JsonObject()
                            .Add("file", path)
                            .Add("release", static_cast<int64_t>(view.header().release))
                            .Add("choices", static_cast<int64_t>(choices))
                            .Add("bytes", static_cast<int64_t>(bytes.size()))
                            .Take()
                     << std::endl;  // a reader of --watch waits for the line
  }
  context.Say(absl::StrCat("wrote release ", view.header().release, " to ", path, ": ", choices,
                           choices == 1 ? " choice, " : " choices, ",
                           FormatBytes(static_cast<int64_t>(bytes.size()))));
  return absl::OkStatus();
}

absl::Status ReleaseFetch::Fetch(Context& context, ReleaseClient& client) {
  uint64_t version = version_;
  ASSIGN_OR_RETURN(const std::string bytes, ReadAll(client, &version));
  return bytes.empty() ? absl::OkStatus() : Write(context, version, bytes);
}

ExitCode ReleaseFetch::Run(Context& context, ReleaseClient& client, absl::Duration wait,
                           absl::Duration watch) {
  const bool watching = watch > absl::ZeroDuration();
  if (watching) {
    // The first process of a container would ignore a signal without a handler.
    std::signal(SIGTERM, StopFetching);
    std::signal(SIGINT, StopFetching);
  }
  const absl::Time end = absl::Now() + wait;
  absl::Status status = Fetch(context, client);
  while (!status.ok() && MayComeYet(status) && absl::Now() < end && fetch_stopped == 0) {
    SleepUnlessStopped(std::min(kFetchRetry, end - absl::Now()));
    status = Fetch(context, client);
  }
  if (!watching) return status.ok() ? ExitCode::kDone : context.Fail(status);
  while (fetch_stopped == 0) {
    if (!status.ok()) context.Fail(status);
    SleepUnlessStopped(watch);
    if (fetch_stopped == 0) status = Fetch(context, client);
  }
  return ExitCode::kDone;
}

}  // namespace convtune::cli
