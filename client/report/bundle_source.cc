#include "client/report/bundle_source.h"

#include <memory>
#include <optional>
#include <vector>

#include "db/bundle/bundle_codec.h"
#include "db/bundle/bundle_reader.h"
#include "proto/base/status_macros.h"

namespace convtune::report {

absl::StatusOr<int64_t> AddBundle(const std::string& path, absl::Time now, ReportData* data,
                                  const std::function<void(int64_t, int64_t)>& progress) {
  ASSIGN_OR_RETURN(const std::unique_ptr<db::bundle::BundleReader> reader,
                   db::bundle::BundleReader::Open(path));
  int64_t refused = 0;
  db::bundle::BundleEntry entry;
  while (true) {
    ASSIGN_OR_RETURN(const bool more, reader->Next(&entry));
    if (!more) return refused;
    std::vector<db::bundle::BundleRefusal> refusals;
    const std::optional<Tuning> tuning =
        db::bundle::FromBundleTuning(*entry.row, *entry.environment, now, &refusals);
    if (tuning) {
      data->Add(*tuning, entry.environment->environment);
    } else {
      ++refused;
    }
    if (progress) progress(reader->offset(), reader->size());
  }
}

}  // namespace convtune::report
