#include "client/cli/commands/release_fetch.h"

#include <fcntl.h>
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <filesystem>
#include <memory>
#include <ostream>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "client/cli/output/atomic_file.h"
#include "client/cli/output/units.h"
#include "client/cli/output/value.h"
#include "db/snapshot/snapshot.h"
#include "proto/base/status_macros.h"
#include "proto/base/unique_fd.h"

namespace convtune::cli::commands {
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

// A file, mapped to be read.
class Mapping {
 public:
  Mapping(const std::string& path, size_t size) : size_(size) {
    const UniqueFd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC));
    if (fd.valid()) data_ = mmap(nullptr, size, PROT_READ, MAP_PRIVATE, fd.get(), 0);
  }
  ~Mapping() {
    if (data() != nullptr) munmap(data_, size_);
  }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;

  // Null if it could not be mapped.
  const void* data() const { return data_ == MAP_FAILED ? nullptr : data_; }

 private:
  const size_t size_;
  void* data_ = MAP_FAILED;
};

bool MayComeYet(const absl::Status& status) {
  return absl::IsUnavailable(status) || absl::IsNotFound(status) || absl::IsAborted(status);
}

}  // namespace

absl::Status ReleaseFetch::Fetch(app::Context& context, client::Client& client) {
  const std::string path = absl::StrCat(folder_, "/", snapshot::kSnapshotFile);
  std::unique_ptr<output::AtomicFile> file;
  int64_t size = 0;
  v1::ReadSnapshotRequest request;
  request.set_version(version_);
  while (true) {
    request.set_offset(size);
    ASSIGN_OR_RETURN(const v1::ReadSnapshotResponse piece,
                     client.Call<v1::ReadSnapshotResponse>(request));
    if (piece.size_bytes() > kMaxSnapshotBytes) {
      return absl::FailedPreconditionError(absl::StrCat("the snapshot has ", piece.size_bytes(),
                                                        " bytes, more than ", kMaxSnapshotBytes));
    }
    if (file == nullptr) {
      if (piece.chunk().empty()) return absl::OkStatus();  // it is that of version_
      std::error_code made;
      std::filesystem::create_directories(folder_, made);
      ASSIGN_OR_RETURN(file, output::AtomicFile::Create(path, "FOLDER"));
    }
    RETURN_IF_ERROR(file->Write(piece.chunk()));
    size += static_cast<int64_t>(piece.chunk().size());
    request.set_version(piece.version());
    if (piece.chunk().empty() || size >= piece.size_bytes()) break;
  }
  // What a program would refuse must not replace what it has.
  const Mapping mapping(file->temporary_path(), static_cast<size_t>(size));
  if (mapping.data() == nullptr) {
    return absl::ErrnoToStatus(errno, absl::StrCat(path, ": the new one cannot be read"));
  }
  snapshot::SnapshotView view;
  const snapshot::SnapshotError error =
      snapshot::SnapshotView::Open(mapping.data(), static_cast<size_t>(size), &view);
  if (error != snapshot::SnapshotError::kNone) {
    return absl::DataLossError(
        absl::StrCat("the snapshot that came is not sound: ", snapshot::Describe(error)));
  }
  RETURN_IF_ERROR(file->Commit());
  version_ = request.version();
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

app::ExitCode ReleaseFetch::Run(app::Context& context, client::Client& client, absl::Duration wait,
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
  if (!watching) return status.ok() ? app::ExitCode::kDone : context.Fail(status);
  while (fetch_stopped == 0) {
    if (!status.ok()) context.Fail(status);
    SleepUnlessStopped(watch);
    if (fetch_stopped == 0) status = Fetch(context, client);
  }
  return app::ExitCode::kDone;
}

}  // namespace convtune::cli::commands
