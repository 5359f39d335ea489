#include "server/devices/xid.h"

#include <algorithm>
#include <array>
#include <utility>

#include "absl/strings/str_cat.h"

namespace convtune::devices {
namespace {

// Xids by what they mean, in ascending order, since KindOfXid searches by halving. Any other
// Xid is kNotice.
constexpr std::array kLost = {46,  48,  62,  64,  74,  79,  95,  109, 110, 119,
                              120, 136, 140, 143, 155, 156, 158, 160, 162};
constexpr std::array kApplication = {8,  11, 13, 25, 31, 32, 39, 40, 41, 43, 45,
                                     60, 68, 69, 70, 71, 72, 75, 76, 77, 80, 94};

constexpr std::pair<int64_t, const char*> kWords[] = {
    {13, "an exception in a kernel"},
    {31, "a page fault"},
    {43, "a channel was reset"},
    {45, "a context was taken down"},
    {48, "an uncorrectable memory error"},
    {62, "the power management unit halted"},
    {63, "a memory page is to be retired"},
    {64, "a memory page could not be retired"},
    {74, "NVLink failed"},
    {79, "the GPU has fallen off the bus"},
    {94, "a contained memory error"},
    {95, "an uncontained memory error"},
    {109, "a context switch timed out"},
    {119, "the GPU's firmware does not answer"},
    {120, "the GPU's firmware failed"},
    {140, "an unrecovered memory error"},
    {143, "the GPU could not be started"},
    {154, "the recovery action changed"},
};

}  // namespace

XidKind KindOfXid(int64_t xid) {
  if (std::binary_search(kLost.begin(), kLost.end(), xid)) return XidKind::kLost;
  if (std::binary_search(kApplication.begin(), kApplication.end(), xid)) {
    return XidKind::kApplication;
  }
  return XidKind::kNotice;
}

std::string DescribeXid(int64_t xid) {
  const auto* found = std::find_if(std::begin(kWords), std::end(kWords),
                                   [xid](const auto& words) { return words.first == xid; });
  return found == std::end(kWords) ? absl::StrCat("Xid ", xid)
                                   : absl::StrCat("Xid ", xid, " (", found->second, ")");
}

}  // namespace convtune::devices
