#include "client/report/report.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <tuple>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/time/time.h"

namespace convtune::report {

// The page, with a mark where the data belong: CMakeLists.txt makes it of the files in page/.
extern const char kReportPage[];

namespace {

using Json = nlohmann::ordered_json;

// Seven digits: of the hundreds of thousands of numbers none is known better.
Json JsonNumber(double value) {
  if (!std::isfinite(value)) return nullptr;
  char text[32];
  const auto end = std::to_chars(text, text + sizeof text, value, std::chars_format::general, 7);
  std::from_chars(text, end.ptr, value);
  const auto whole = static_cast<int64_t>(std::abs(value) < 1e15 ? value : 0);
  return static_cast<double>(whole) == value ? Json(whole) : Json(value);
}
Json JsonNumber(const std::optional<double>& value) { return value ? JsonNumber(*value) : Json(); }
Json Index(int number) { return number < 0 ? Json() : Json(number); }
// Null for a time that was not measured.
Json JsonTime(double us) { return us > 0 ? JsonNumber(us) : Json(); }
Json Bool(const std::optional<bool>& value) { return value ? Json(*value) : Json(); }

template <typename List, typename Fn>
Json Array(const List& list, const Fn& element) {
  Json out = Json::array();
  for (const auto& value : list) out.push_back(element(value));
  return out;
}

Json Headline(const ReportHeadline& h) {
  return Json::object({{"rows", h.rows},
                       {"measured", h.measured},
                       {"incomplete", h.incomplete},
                       {"observed", h.observed},
                       {"heuristic", h.heuristic},
                       {"failed", h.failed},
                       {"nodes", h.nodes},
                       {"gpus", h.gpus},
                       {"environments", h.environments},
                       {"problems", h.problems},
                       {"pairs", h.pairs},
                       {"timed_pairs", h.timed_pairs},
                       {"wanted_pairs", h.wanted_pairs},
                       {"coverage", JsonNumber(h.coverage)},
                       {"hit_ratio", JsonNumber(h.hit_ratio)},
                       {"compared_pairs", h.compared_pairs},
                       {"gain", JsonNumber(h.gain)},
                       {"stock_is_best", JsonNumber(h.stock_is_best)},
                       {"search_seconds", JsonNumber(h.search_seconds)},
                       {"stale", JsonNumber(h.stale)},
                       {"disagreements", h.disagreements},
                       {"slow_gpus", h.slow_gpus},
                       {"regressions", h.regressions}});
}

Json Pairs(const Report& report) {
  return Json::object({{"columns",
                        {"environment", "problem", "nodes", "timed_nodes", "evidence", "winner",
                         "stock", "winner_us", "stock_us", "search_seconds", "stale_nodes",
                         "disagreeing_nodes", "disagreement_us"}},
                       {"values", Array(report.pairs, [](const ReportPair& p) {
                          return Json::array({p.environment, p.problem, p.nodes, p.timed_nodes,
                                              static_cast<int>(p.evidence), Index(p.winner),
                                              Index(p.stock), JsonTime(p.winner_us),
                                              JsonTime(p.stock_us), JsonNumber(p.search_seconds),
                                              p.stale_nodes, p.disagreeing_nodes,
                                              JsonNumber(p.disagreement_us)});
                        })}});
}

// Rows that the document has at most, the newest; its numbers are of all.
constexpr size_t kMostRows = 200'000;

// By environment, problem and place.
std::vector<const ReportRow*> RowsOfDocument(const ReportData& data) {
  std::vector<const ReportRow*> rows;
  for (const auto& [key, of_pair] : data.pairs()) {
    for (const ReportRow& row : of_pair) rows.push_back(&row);
  }
  const auto place = [](const ReportRow* row) {
    return std::tuple(row->environment, row->problem, row->place);
  };
  if (rows.size() > kMostRows) {
    std::nth_element(rows.begin(), rows.begin() + ptrdiff_t{kMostRows}, rows.end(),
                     [&](const ReportRow* a, const ReportRow* b) {
                       return std::pair(b->tune_time_us, place(a)) <
                              std::pair(a->tune_time_us, place(b));
                     });
    rows.resize(kMostRows);
  }
  std::sort(rows.begin(), rows.end(),
            [&](const ReportRow* a, const ReportRow* b) { return place(a) < place(b); });
  return rows;
}

Json RowsJson(const ReportData& data, const Report& report) {
  const std::vector<const ReportRow*> rows = RowsOfDocument(data);
  const auto values = [](const ReportRow* row) {
    return Json::array({row->environment, row->problem, row->place, static_cast<int>(row->evidence),
                        Index(row->winner), Index(row->stock), JsonTime(row->winner_us()),
                        JsonTime(row->stock_us()), JsonTime(row->sm_clock_mhz),
                        Bool(row->throttled), row->workspace_bytes, row->candidate_count,
                        absl::ToUnixSeconds(absl::FromUnixMicros(row->tune_time_us)),
                        JsonNumber(row->elapsed_seconds()), row->stale});
  };
  return Json::object({{"columns",
                        {"environment", "problem", "place", "evidence", "winner", "stock",
                         "winner_us", "stock_us", "sm_clock_mhz", "throttled", "workspace_bytes",
                         "candidates", "tune_time", "search_seconds", "stale"}},
                       {"left_out", report.headline.rows - static_cast<int64_t>(rows.size())},
                       {"values", Array(rows, values)}});
}

Json Share(const ReportShare& share) {
  return Json::object({{"gpu_model", share.gpu_model},
                       {"data_type", Name(share.data_type)},
                       {"layout", Name(share.layout)},
                       {"operation", Name(share.operation)},
                       {"pairs", share.pairs},
                       {"engines", Array(share.engines, [](const auto& engine) {
                          return Json::object({{"engine", engine.first}, {"pairs", engine.second}});
                        })}});
}

Json Disagreement(const ReportDisagreement& d) {
  const auto other = [](const ReportDisagreement::Other& o) {
    return Json::object({{"winner", Index(o.candidate)},
                         {"places", Array(o.places, [](int place) { return place; })},
                         {"cost_us", JsonNumber(o.cost_us)},
                         {"cost_ratio", JsonNumber(o.cost_ratio)}});
  };
  return Json::object({{"environment", d.environment},
                       {"problem", d.problem},
                       {"timed_nodes", d.nodes},
                       {"winner", Index(d.winner)},
                       {"cost_us", JsonNumber(d.cost_us)},
                       {"others", Array(d.others, other)}});
}

Json Upgrade(const ReportUpgrade& u) {
  const auto values = [](const ReportUpgrade::Point& p) {
    return Json::array({p.problem, p.environment, JsonNumber(p.from_us), JsonNumber(p.to_us),
                        Index(p.from_winner), Index(p.to_winner), Bool(p.beyond_noise)});
  };
  return Json::object(
      {{"kind", u.kind == ReportUpgrade::Kind::kCudnn ? "cudnn" : "driver"},
       {"subject", u.subject},
       {"from", u.from},
       {"to", u.to},
       {"regressions", u.regressions},
       {"improvements", u.improvements},
       {"ratio", JsonNumber(u.ratio)},
       {"columns",
        {"problem", "environment", "from_us", "to_us", "from_winner", "to_winner", "beyond_noise"}},
       {"values", Array(u.points, values)}});
}

Json Gpu(const ReportGpu& gpu) {
  return Json::object({{"node", gpu.node},
                       {"gpu_uuid", gpu.gpu_uuid},
                       {"gpu_model", gpu.gpu_model},
                       {"compared", gpu.compared},
                       {"ratio", JsonNumber(gpu.ratio)},
                       {"clock_mhz", JsonTime(gpu.clock_mhz)},
                       {"model_clock_mhz", JsonTime(gpu.model_clock_mhz)},
                       {"throttled", JsonNumber(gpu.throttled)},
                       {"slow", gpu.slow}});
}

Json Roof(const ReportRoof& roof) {
  return Json::object({{"gpu_model", roof.gpu_model},
                       {"data_type", Name(roof.data_type)},
                       {"tflops", JsonNumber(roof.tflops)},
                       {"gbytes_per_second", JsonNumber(roof.gbytes_per_second)},
                       {"pairs", roof.pairs}});
}

Json Wanted(const ReportWanted& wanted) {
  return Json::object({{"problem", wanted.problem},
                       {"environment", wanted.environment},
                       {"misses", wanted.misses},
                       {"nodes", wanted.nodes},
                       {"last_error", wanted.last_error}});
}

Json EnvironmentObject(const Environment& e) {
  return Json::object({{"text", e.ToText()},
                       {"name", e.Name()},
                       {"gpu_model", e.gpu_model},
                       {"cudnn", e.cudnn.ToText()},
                       {"profile", e.profile},
                       {"simulated", e.simulated()}});
}

Json Problem(const ReportProblem& p) {
  return Json::object({{"text", p.text},
                       {"operation", Name(p.operation)},
                       {"data_type", Name(p.data_type)},
                       {"layout", Name(p.layout)},
                       {"flops", JsonNumber(p.flops)},
                       {"tensor_bytes", p.tensor_bytes}});
}

Json Place(const ReportPlace& p) {
  return Json::object(
      {{"node", p.node}, {"gpu_uuid", p.gpu_uuid}, {"driver", p.driver}, {"cuda", p.cuda}});
}

}  // namespace

std::string ReportJson(const ReportData& data, const Report& report) {
  const ReportOptions& options = report.options;
  const Json document = Json::object(
      {{"format", 1},
       {"generated", absl::FormatTime("%Y-%m-%dT%H:%M:%SZ", options.now, absl::UTCTimeZone())},
       {"options", Json::object({{"stale_after_seconds",
                                  JsonNumber(absl::ToDoubleSeconds(options.stale_after))},
                                 {"slow_ratio", JsonNumber(kSlowRatio)},
                                 {"least_change", JsonNumber(kLeastChange)}})},
       {"headline", Headline(report.headline)},
       {"shares", Array(report.shares, Share)},
       {"disagreements", Array(report.disagreements, Disagreement)},
       {"upgrades", Array(report.upgrades, Upgrade)},
       {"upgrade_checks", Json::parse(data.upgrade_checks())},
       {"gpus", Array(report.gpus, Gpu)},
       {"roofs", Array(report.roofs, Roof)},
       {"wanted", Array(report.wanted, Wanted)},
       {"environments", Array(data.environments(), EnvironmentObject)},
       {"problems", Array(data.problems(), Problem)},
       {"places", Array(data.places(), Place)},
       {"candidates", Array(data.candidates(), [](const std::string& c) { return c; })},
       {"pairs", Pairs(report)},
       {"rows", RowsJson(data, report)}});
  // Within JSON a "<" is in strings only.
  return absl::StrReplaceAll(document.dump(-1, ' ', false, Json::error_handler_t::replace),
                             {{"<", "\\u003c"}});
}

std::string ReportHtml(const ReportData& data, const Report& report) {
  return absl::StrReplaceAll(kReportPage, {{"/*DATA*/", ReportJson(data, report)}});
}

}  // namespace convtune::report
