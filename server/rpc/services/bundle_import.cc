#include "server/rpc/services/bundle_import.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <optional>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "db/bundle/bundle_codec.h"
#include "db/bundle/bundle_merge.h"
#include "db/bundle/bundle_reader.h"
#include "proto/base/replace_file.h"
#include "proto/base/status_macros.h"
#include "server/rpc/http2/limits.h"

namespace convtune::rpc::services {
namespace {

// A damaged upload is its sender's fault: DATA_LOSS is said of the store alone, which a backup
// mends.
absl::Status UploadStatus(const absl::Status& status) {
  return absl::IsDataLoss(status) ? absl::InvalidArgumentError(status.message()) : status;
}

// One that closes when its reader does, while ours stays.
absl::StatusOr<std::unique_ptr<db::bundle::BundleReader>> OpenReader(int fd) {
  const int copy = fcntl(fd, F_DUPFD_CLOEXEC, 0);
  if (copy < 0) {
    return absl::ResourceExhaustedError(absl::StrCat("bundle: ", std::strerror(errno)));
  }
  auto reader = db::bundle::BundleReader::FromDescriptor(copy, "bundle");
  if (!reader.ok()) return UploadStatus(reader.status());
  return reader;
}

}  // namespace

absl::StatusOr<std::unique_ptr<BundleImport>> BundleImport::Create(const ServiceOptions& options) {
  std::string path = options.state_dir + "/import-XXXXXX";
  const int fd = mkostemp(path.data(), O_CLOEXEC);
  if (fd < 0) {
    return FileError(options.state_dir, "a bundle cannot be kept there");
  }
  unlink(path.c_str());
  return std::unique_ptr<BundleImport>(new BundleImport(options, fd));
}

BundleImport::~BundleImport() { close(fd_); }

absl::Status BundleImport::Append(std::string_view piece) {
  bytes_ += static_cast<int64_t>(piece.size());
  if (bytes_ > http2::kMaxBundleBytes) {
    return absl::ResourceExhaustedError(
        absl::StrCat("chunk: a bundle may have at most ", http2::kMaxBundleBytes, " bytes"));
  }
  while (!piece.empty()) {
    const ssize_t written = write(fd_, piece.data(), piece.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return FileError(options_.state_dir, "the bundle cannot be kept there");
    piece.remove_prefix(static_cast<size_t>(written));
  }
  // What is no bundle must not fill the disk before that is noticed.
  std::array<char, db::bundle::kBundleMagic.size()> head{};
  const std::string_view text(head.data(), head.size());
  if (bytes_ >= static_cast<int64_t>(head.size()) && !head_checked_ &&
      (pread(fd_, head.data(), head.size(), 0) != static_cast<ssize_t>(head.size()) ||
       text != db::bundle::kBundleMagic)) {
    return OpenReader(fd_).status();
  }
  head_checked_ = bytes_ >= static_cast<int64_t>(head.size());
  return absl::OkStatus();
}

absl::StatusOr<v1::ImportBundleResponse> BundleImport::Finish() {
  v1::ImportBundleResponse response;
  {
    // Before anything of it gets near the database.
    ASSIGN_OR_RETURN(const std::unique_ptr<db::bundle::BundleReader> reader, OpenReader(fd_));
    RETURN_IF_ERROR(UploadStatus(reader->CheckBytes()));
    RETURN_IF_ERROR(
        db::bundle::CheckBundleSignature(reader->trailer(), options_.bundle_keys, reader->name()));
    response.set_tuning_count(reader->trailer().tuning_count());
    response.set_signer(absl::BytesToHexString(reader->trailer().public_key()));
  }
  ASSIGN_OR_RETURN(const v1::ImportBundleResponse counts, Take(&response));
  response.MergeFrom(counts);
  return response;
}

absl::StatusOr<v1::ImportBundleResponse> BundleImport::Take(v1::ImportBundleResponse* response) {
  const absl::Time now = options_.clock->Now();
  ASSIGN_OR_RETURN(const std::unique_ptr<db::bundle::BundleReader> reader, OpenReader(fd_));
  db::bundle::BundleEntry entry;
  return options_.tuner->ImportTunings([&]() -> absl::StatusOr<std::optional<db::TuningRecord>> {
    while (true) {
      const absl::StatusOr<bool> more = reader->Next(&entry);
      if (!more.ok()) return UploadStatus(more.status());
      if (!*more) return std::nullopt;
      auto tuning = db::bundle::FromBundleTuning(*entry.row, *entry.environment, now);
      if (entry.environment->environment.simulated()) {
        response->set_simulated_count(response->simulated_count() + 1);
      }
      if (!tuning.ok()) {
        db::bundle::AddRefusal(entry, tuning.status(), response);
      } else {
        return db::TuningRecord{*std::move(tuning), entry.environment->environment};
      }
    }
  });
}

}  // namespace convtune::rpc::services
