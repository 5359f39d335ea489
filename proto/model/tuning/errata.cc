#include "proto/model/tuning/errata.h"

#include "absl/strings/str_cat.h"
#include "absl/time/civil_time.h"
#include "proto/model/tuning/errata_rules.h"

namespace convtune {
namespace {

constexpr absl::CivilDay kRead(2026, 11, 26);  // what kErrata holds

// Of a number of cudnnGetVersion: 8907 and 91900.
CudnnVersion VersionOf(int number) {
  return number < 90'000 ? CudnnVersion{number / 1000, number / 100 % 10, number % 100}
                         : CudnnVersion{number / 10'000, number / 100 % 100, number % 100};
}

}  // namespace

std::vector<Ban> ShippedBans() {
  std::vector<Ban> bans;
  for (const Erratum& erratum : kErrata) {
    Ban& ban = bans.emplace_back();
    ban.number = Ban::kShipped + static_cast<int64_t>(bans.size());
    ban.candidate.number = erratum.engine;
    ban.cudnn.start = VersionOf(erratum.cudnn_begin);
    if (erratum.cudnn_end != 0) ban.cudnn.end = VersionOf(erratum.cudnn_end);
    if (erratum.sm != 0) ban.gpu = absl::StrCat("sm-", erratum.sm);
    ban.operation = erratum.operation;
    ban.spatial_rank = erratum.spatial_rank;
    ban.author = "convtune";
    ban.reason = erratum.reason;
    ban.create_time = absl::FromCivil(kRead, absl::UTCTimeZone());
  }
  return bans;
}

}  // namespace convtune
