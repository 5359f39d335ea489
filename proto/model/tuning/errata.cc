#include "proto/model/tuning/errata.h"

#include "absl/time/civil_time.h"

namespace convtune {
namespace {

// PyTorch has these as rules. They were read on 2026-11-26 from libtorch_cuda.so in PyTorch
// 2.15.0's wheel of 2026-10-28. A new entry goes to the end, since its place is its number.
constexpr absl::CivilDay kRead(2026, 11, 26);

struct Erratum {
  int engine;
  Operation operation;
  CudnnRange cudnn;
  const char* gpu;
  int spatial_rank;
  const char* reason;
};

constexpr char kIllegalAccess[] =
    "calls a cuBLASLt kernel that accesses memory it must not, until cuBLAS 13.6.1: "
    "github.com/pytorch/pytorch/pull/190112 and 191701";

const Erratum kErrata[] = {
    {5,
     Operation::kFwd,
     {{9, 23, 1}, CudnnVersion{9, 24, 0}},
     "sm-86",
     0,
     "two runs differ: github.com/pytorch/pytorch/issues/188288, pull/189207"},
    {58, Operation::kFwd, {{9, 23, 0}, {}}, "sm-120", 0, kIllegalAccess},
    {63, Operation::kBwdData, {{9, 23, 0}, {}}, "sm-120", 0, kIllegalAccess},
    {63, Operation::kBwdFilter, {{9, 23, 0}, {}}, "sm-120", 0, kIllegalAccess},
    {23,
     Operation::kFwd,
     {{9, 8, 0}, CudnnVersion{9, 15, 0}},
     "",
     3,
     "wrong results: github.com/pytorch/pytorch/issues/163539"},
    {23,
     Operation::kBwdData,
     {{8, 0, 0}, {}},
     "",
     3,
     "numerical faults in tests: github.com/pytorch/pytorch/pull/171747"},
};

}  // namespace

std::vector<Ban> ShippedBans() {
  std::vector<Ban> bans;
  for (const Erratum& erratum : kErrata) {
    Ban& ban = bans.emplace_back();
    ban.number = Ban::kShipped + static_cast<int64_t>(bans.size());
    ban.candidate.number = erratum.engine;
    ban.cudnn = erratum.cudnn;
    ban.gpu = erratum.gpu;
    ban.operation = erratum.operation;
    ban.spatial_rank = erratum.spatial_rank;
    ban.author = "convtune";
    ban.reason = erratum.reason;
    ban.create_time = absl::FromCivil(kRead, absl::UTCTimeZone());
  }
  return bans;
}

}  // namespace convtune
