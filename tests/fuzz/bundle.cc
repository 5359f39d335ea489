// Bundles: the frames, what is in them, and every rule of a row. By its first
// byte the input is a file, or records that are given their checksums, and a
// trailer that fits, so that what lies behind those is reached too.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>

#include "absl/time/time.h"
#include "db/bundle/bundle_codec.h"
#include "db/bundle/bundle_merge.h"
#include "db/bundle/bundle_reader.h"
#include "proto/base/strings.h"
#include "proto/model/environment.h"
#include "tests/fuzz/fuzz.h"

namespace {

using convtune::AppendLittleEndian;
using convtune::fuzz::Require;

void AddRecord(convtune::db::bundle::BundleRecordKind kind, std::string_view message,
               std::string* file) {
  std::string covered;
  AppendLittleEndian(file->size(), 8, &covered);
  AppendLittleEndian(message.size(), 4, &covered);
  AppendLittleEndian(static_cast<uint64_t>(kind), 4, &covered);
  covered += message;
  file->append(covered, 8);
  AppendLittleEndian(convtune::Checksum64(covered), 8, file);
}

// Of records, each a byte for its kind, two for its length, and its message.
std::string Sealed(std::string_view input) {
  std::string file(convtune::db::bundle::kBundleMagic);
  convtune::v1::BundleTrailer trailer;
  convtune::v1::BundleHeader header;
  header.set_format_version(convtune::db::bundle::kBundleVersion);
  AddRecord(convtune::db::bundle::BundleRecordKind::kHeader, header.SerializeAsString(), &file);
  while (input.size() >= 3) {
    const auto kind = static_cast<convtune::db::bundle::BundleRecordKind>(input[0] % 5);
    const size_t length = std::min(
        static_cast<size_t>(convtune::ReadLittleEndian(input.data() + 1, 2)), input.size() - 3);
    AddRecord(kind, input.substr(3, length), &file);
    if (kind == convtune::db::bundle::BundleRecordKind::kEnvironment) {
      trailer.set_environment_count(trailer.environment_count() + 1);
    }
    if (kind == convtune::db::bundle::BundleRecordKind::kTuning) {
      trailer.set_tuning_count(trailer.tuning_count() + 1);
    }
    input.remove_prefix(3 + length);
  }
  convtune::db::bundle::Sha256 sha256;
  sha256.Update(file);
  trailer.set_sha256(sha256.Digest());
  AddRecord(convtune::db::bundle::BundleRecordKind::kTrailer, trailer.SerializeAsString(), &file);
  return file;
}

std::unique_ptr<convtune::db::bundle::BundleReader> Open(const std::string& file) {
  const int fd = memfd_create("bundle", MFD_CLOEXEC);
  Require(fd >= 0 && write(fd, file.data(), file.size()) == static_cast<ssize_t>(file.size()));
  auto reader = convtune::db::bundle::BundleReader::FromDescriptor(fd, "bundle");
  Require(reader.ok() || !reader.status().message().empty());
  return reader.ok() ? *std::move(reader) : nullptr;
}

// A row that breaks no rule is written as it was read.
void CheckRow(const convtune::db::bundle::BundleEntry& entry) {
  const absl::Time now = absl::FromUnixSeconds(1'800'000'000);
  const auto tuning = convtune::db::bundle::FromBundleTuning(*entry.row, *entry.environment, now);
  Require(tuning.ok() == (convtune::db::bundle::RefusalReasonOf(tuning.status()) ==
                          convtune::v1::REFUSAL_REASON_UNSPECIFIED));
  if (!tuning.ok()) return;
  const auto row =
      convtune::db::bundle::ToBundleTuning(*tuning, entry.row->environment_number(), true);
  const auto again = convtune::db::bundle::FromBundleTuning(row, *entry.environment, now);
  Require(again.ok() && *again == *tuning);
}

}  // namespace

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string input = convtune::fuzz::ToString(data + 1, size - 1);
  const std::string file = data[0] % 2 == 1 ? Sealed(input) : input;
  const auto reader = Open(file);
  if (reader == nullptr) return 0;
  static_cast<void>(convtune::db::bundle::ReadWholeBundle(reader.get(), {}, CheckRow));
  static_cast<void>(convtune::db::bundle::WriteBundleJson(
      Open(file).get(), {}, [](const std::string&) { return absl::OkStatus(); }));
  return 0;
}
