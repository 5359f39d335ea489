#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "absl/time/time.h"
#include "client/report/report_document.h"

namespace convtune::report {
namespace {

constexpr size_t kPart = 1 << 20;  // bytes

std::string Quoted(const std::string& field) {
  if (field.find_first_of(",\"\n\r") == std::string::npos) return field;
  return absl::StrCat("\"", absl::StrReplaceAll(field, {{"\"", "\"\""}}), "\"");
}

std::string Number(double value) { return absl::StrFormat("%.7g", value); }
std::string Time(double us) { return us > 0 ? Number(us) : ""; }

std::string Timestamp(absl::Time time) {
  return absl::FormatTime("%Y-%m-%dT%H:%M:%SZ", time, absl::UTCTimeZone());
}

// What many rows have in common, quoted once.
struct Common {
  explicit Common(const ReportData& data) {
    for (const ReportProblem& problem : data.problems()) problems.push_back(Quoted(problem.text));
    for (const std::string& text : data.candidates()) candidates.push_back(Quoted(text));
    for (const Environment& e : data.environments()) {
      environments.push_back(
          absl::StrCat(Quoted(e.ToText()), ",", Quoted(e.gpu_model), ",", e.cudnn.ToText()));
    }
    for (const ReportPlace& place : data.places()) {
      places.push_back(absl::StrCat(Quoted(place.node), ",", Quoted(place.gpu_uuid), ",",
                                    Quoted(place.driver), ",", Quoted(place.cuda)));
    }
  }
  std::string_view Candidate(int number) const {
    return number < 0 ? "" : std::string_view(candidates[static_cast<size_t>(number)]);
  }
  std::vector<std::string> problems, candidates, environments, places;
};

}  // namespace

void WriteReportCsv(const ReportData& data, const std::function<void(std::string_view)>& write) {
  const Common common(data);
  std::string out =
      "problem,environment,gpu_model,cudnn,node,gpu_uuid,driver,cuda,evidence,winner,winner_us,"
      "stock,stock_us,sm_clock_mhz,throttled,workspace_bytes,candidates,tuned,search_seconds\n";
  const auto append = [&out](std::string_view text) {
    out += text;
    out += ',';
  };
  const auto add = [&](const ReportRow& row) {
    append(common.problems[static_cast<size_t>(row.problem)]);
    append(common.environments[static_cast<size_t>(row.environment)]);
    append(common.places[static_cast<size_t>(row.place)]);
    append(Name(row.evidence));
    append(common.Candidate(row.winner));
    append(Time(row.winner_us()));
    append(common.Candidate(row.stock));
    append(Time(row.stock_us()));
    append(Time(row.sm_clock_mhz));
    append(row.throttled ? (*row.throttled ? "true" : "false") : "");
    absl::StrAppend(&out, row.workspace_bytes, ",", row.candidate_count, ",",
                    Timestamp(absl::FromUnixMicros(row.tune_time_us)), ",",
                    Number(row.elapsed_seconds()), "\n");
  };
  for (const auto& [key, rows] : data.pairs()) {
    std::for_each(rows.begin(), rows.end(), add);
    if (out.size() < kPart) continue;
    write(out);
    out.clear();
  }
  write(out);
}

}  // namespace convtune::report
