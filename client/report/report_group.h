// All rows of one problem and environment as bytes: what the fleet's database keeps
// of them for reports, so that a report reads ten million rows in seconds.
// README.md describes the format, which is persisted.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "client/report/report_data.h"

namespace convtune::report {

// A node's tuning, and a number for where it was measured.
struct GroupTuning {
  int64_t place = 0;
  const Tuning* tuning = nullptr;
};

// Packs tunings of one problem and environment, of each place at most one. Of the
// times of a tuning those are kept that a report looks at: its winner's and its stock
// choice's, and those of the candidates that matter for the group as a whole
// (ChooseCommon). So a report of the bytes has the numbers of a report of the
// tunings.
std::string PackGroup(const std::vector<GroupTuning>& tunings, const Environment& environment);

// Adds the rows that PackGroup packed. `places[n]` is the data's number of the place that
// GroupTuning calls n; -1: it is not known. DATA_LOSS: the bytes are not what PackGroup makes, or a
// place is not known; some rows may have been added.
absl::Status AddGroup(std::string_view bytes, int environment, int problem,
                      const std::vector<int>& places, ReportData* data);

}  // namespace convtune::report
