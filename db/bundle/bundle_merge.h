// MergeBundles makes one bundle of several; WriteBundleJson writes one as JSON lines, for people
// and for diff.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "db/bundle/bundle_codec.h"
#include "db/bundle/bundle_reader.h"
#include "db/bundle/bundle_writer.h"

namespace convtune::db::bundle {

// Counts of the tunings of all inputs, by their fate in the merge.
struct BundleMergeCounts {
  int64_t read = 0;
  int64_t written = 0;
  int64_t superseded = 0;  // another input had a better one of the same key
  int64_t refused = 0;     // broke a rule
};

struct BundleMergeOptions {
  absl::Time now;             // what the rows' times are held against
  bool skip_refused = false;  // leave rows out that break a rule
  // Told of each refused row, and of the bytes read so far; may be empty.
  std::function<void(const std::string&)> refused;
  std::function<void(int64_t)> progress;
};

// Writes what Supersedes prefers of each key, of the earlier input between
// equals, and finishes `out`. Memory does not grow with the inputs.
// INVALID_ARGUMENT: a row breaks a rule and is not to be skipped.
absl::StatusOr<BundleMergeCounts> MergeBundles(const std::vector<std::string>& inputs,
                                               const BundleMergeOptions& options,
                                               BundleWriter* out);

// Counts a row that was refused in `refused_count` and `refusals`; `refusal` is what
// FromBundleTuning said of it.
void AddRefusal(const BundleEntry& entry, const absl::Status& refusal,
                v1::ImportBundleResponse* counts);

// Says which row was refused and why: "byte N, problem: field: rule". A row whose problem cannot
// be read is named by its byte alone.
std::string RefusalText(const BundleEntry& entry, const absl::Status& refusal);

// How every file begins that WriteBundleJson wrote.
inline constexpr std::string_view kBundleJson = "{\"place\":";

// One line for each tuning, in the order of the bundle, with the text of its
// environment in place of a number: {"environment": TEXT, "tuning": Tuning
// in protobuf's JSON form}. Before the first one of an environment and place:
// {"place": BundleEnvironment}. Reads `reader` to its end and checks the
// signature as ReadWholeBundle; `sink` takes lines with their "\n".
absl::Status WriteBundleJson(BundleReader* reader, const std::vector<std::string>& trusted,
                             const std::function<absl::Status(const std::string&)>& sink);

}  // namespace convtune::db::bundle
