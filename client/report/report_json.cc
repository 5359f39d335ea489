#include "client/report/report_json.h"

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/time.h"
#include "proto/base/strings.h"

namespace convtune {
namespace {

std::string Text(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out += {'\\', c};
    } else if (byte < 0x20 || c == '<') {
      absl::StrAppendFormat(&out, "\\u%04x", byte);
    } else {
      out += c;
    }
  }
  return out + "\"";
}

std::string Number(double value) {
  return std::isfinite(value) ? absl::StrFormat("%.7g", value) : "null";
}
std::string Number(const std::optional<double>& value) { return value ? Number(*value) : "null"; }
std::string Count(int64_t value) { return absl::StrCat(value); }
// A time that nothing was measured for is none.
std::string Time(double us) { return us > 0 ? Number(us) : "null"; }
std::string Index(int number) { return number < 0 ? "null" : absl::StrCat(number); }

using Members = std::initializer_list<std::pair<const char*, std::string>>;

std::string Object(const Members& members) {
  std::string out = "{";
  for (const auto& [key, value] : members) {
    absl::StrAppend(&out, out.size() > 1 ? "," : "", "\"", key, "\":", value);
  }
  return out + "}";
}

template <typename List, typename Fn>
std::string Array(const List& list, const Fn& element) {
  std::string out = "[";
  for (const auto& value : list) {
    if (out.size() > 1) out += ',';
    out += element(value);
  }
  return out + "]";
}

std::string Values(std::initializer_list<std::string> values) {
  return Array(values, [](const std::string& value) { return value; });
}

std::string Timestamp(absl::Time time) {
  return absl::FormatTime("%Y-%m-%dT%H:%M:%SZ", time, absl::UTCTimeZone());
}

std::string CudnnText(const Environment& e) {
  return absl::StrCat(e.cudnn.major, ".", e.cudnn.minor, ".", e.cudnn.patch);
}

std::string Headline(const ReportHeadline& h) {
  return Object({{"rows", Count(h.rows)},
                 {"measured", Count(h.measured)},
                 {"incomplete", Count(h.incomplete)},
                 {"observed", Count(h.observed)},
                 {"heuristic", Count(h.heuristic)},
                 {"failed", Count(h.failed)},
                 {"nodes", Count(h.nodes)},
                 {"gpus", Count(h.gpus)},
                 {"environments", Count(h.environments)},
                 {"problems", Count(h.problems)},
                 {"pairs", Count(h.pairs)},
                 {"timed_pairs", Count(h.timed_pairs)},
                 {"wanted_pairs", Count(h.wanted_pairs)},
                 {"coverage", Number(h.coverage)},
                 {"hit_ratio", Number(h.hit_ratio)},
                 {"compared_pairs", Count(h.compared_pairs)},
                 {"gain", Number(h.gain)},
                 {"stock_is_best", Number(h.stock_is_best)},
                 {"search_seconds", Number(h.search_seconds)},
                 {"stale", Number(h.stale)},
                 {"disagreements", Count(h.disagreements)},
                 {"slow_gpus", Count(h.slow_gpus)},
                 {"regressions", Count(h.regressions)}});
}

std::string Pairs(const Report& report) {
  const std::string values = Array(report.pairs, [](const ReportPair& p) {
    return Values({Count(p.environment), Count(p.problem), Count(p.nodes), Count(p.timed_nodes),
                   Count(static_cast<int>(p.evidence)), Index(p.winner), Index(p.stock),
                   Time(p.winner_us), Time(p.stock_us), Number(p.search_seconds),
                   Count(p.stale_nodes), Count(p.disagreeing_nodes), Number(p.disagreement_us)});
  });
  return absl::StrCat(
      R"({"columns":["environment","problem","nodes","timed_nodes","evidence","winner","stock",)",
      R"("winner_us","stock_us","search_seconds","stale_nodes","disagreeing_nodes",)",
      R"("disagreement_us"],"values":)", values, "}");
}

// The newest rows that the document has room for, in their order.
std::vector<const ReportRow*> RowsOfDocument(const ReportData& data, size_t most) {
  std::vector<absl::Time> times;
  absl::Time oldest = absl::InfinitePast();
  size_t at_oldest = most;  // rows of that very time that there is room for
  if (data.rows().size() > most) {
    for (const ReportRow& row : data.rows()) times.push_back(row.tune_time);
    const auto last = times.begin() + static_cast<ptrdiff_t>(times.size() - most);
    std::nth_element(times.begin(), last, times.end());
    oldest = *last;
    at_oldest = static_cast<size_t>(std::count(last, times.end(), oldest));
  }
  std::vector<const ReportRow*> rows;
  for (const ReportRow& row : data.rows()) {
    if (row.tune_time < oldest) continue;
    if (row.tune_time == oldest && data.rows().size() > most) {
      if (at_oldest == 0) continue;
      --at_oldest;
    }
    rows.push_back(&row);
  }
  return rows;
}

std::string Rows(const ReportData& data, const Report& report) {
  const std::vector<const ReportRow*> rows = RowsOfDocument(data, report.options.most_rows);
  const std::string values = Array(rows, [&](const ReportRow* each) {
    const ReportRow& row = *each;
    const bool stale = report.stale_rows[static_cast<size_t>(each - data.rows().data())];
    const ReportTime* stock = row.TimeOf(row.stock);
    return Values({Count(row.environment), Count(row.problem), Count(row.place),
                   Count(static_cast<int>(row.evidence)), Index(row.winner), Index(row.stock),
                   Time(row.timed() ? row.times.front().median_us : 0),
                   Time(stock != nullptr ? stock->median_us : 0), Time(row.sm_clock_mhz),
                   row.throttled ? (*row.throttled ? "true" : "false") : "null",
                   Count(row.workspace_bytes), Count(row.candidate_count),
                   Count(absl::ToUnixSeconds(row.tune_time)),
                   Number(absl::ToDoubleSeconds(row.elapsed)), stale ? "true" : "false"});
  });
  return absl::StrCat(
      R"({"columns":["environment","problem","place","evidence","winner","stock","winner_us",)",
      R"("stock_us","sm_clock_mhz","throttled","workspace_bytes","candidates","tune_time",)",
      R"("search_seconds","stale"],"left_out":)", data.rows().size() - rows.size(), R"(,"values":)",
      values, "}");
}

std::string Share(const ReportShare& share) {
  return Object(
      {{"gpu_model", Text(share.gpu_model)},
       {"data_type", Text(Name(share.data_type))},
       {"layout", Text(Name(share.layout))},
       {"operation", Text(Name(share.operation))},
       {"pairs", Count(share.pairs)},
       {"engines", Array(share.engines, [](const auto& engine) {
          return Object({{"engine", Text(engine.first)}, {"pairs", Count(engine.second)}});
        })}});
}

std::string Disagreement(const ReportDisagreement& d) {
  const auto other = [](const ReportDisagreement::Other& o) {
    return Object({{"winner", Index(o.candidate)},
                   {"places", Array(o.places, [](int place) { return Count(place); })},
                   {"cost_us", Number(o.cost_us)},
                   {"cost_ratio", Number(o.cost_ratio)}});
  };
  return Object({{"environment", Count(d.environment)},
                 {"problem", Count(d.problem)},
                 {"timed_nodes", Count(d.nodes)},
                 {"winner", Index(d.winner)},
                 {"cost_us", Number(d.cost_us)},
                 {"others", Array(d.others, other)}});
}

std::string Upgrade(const ReportUpgrade& u) {
  const std::string values = Array(u.points, [](const ReportUpgrade::Point& p) {
    return Values({Count(p.problem), Count(p.environment), Number(p.from_us), Number(p.to_us),
                   Index(p.from_winner), Index(p.to_winner), p.beyond_noise ? "true" : "false"});
  });
  const bool cudnn = u.kind == ReportUpgrade::Kind::kCudnn;
  return Object(
      {{"kind", Text(cudnn ? "cudnn" : "driver")},
       {"subject", Text(u.subject)},
       {"from", Text(u.from)},
       {"to", Text(u.to)},
       {"regressions", Count(u.regressions)},
       {"improvements", Count(u.improvements)},
       {"ratio", Number(u.ratio)},
       {"columns", R"(["problem","environment","from_us","to_us","from_winner","to_winner",)"
                   R"("beyond_noise"])"},
       {"values", values}});
}

std::string Gpu(const ReportGpu& gpu) {
  return Object({{"node", Text(gpu.node)},
                 {"gpu_uuid", Text(gpu.gpu_uuid)},
                 {"gpu_model", Text(gpu.gpu_model)},
                 {"compared", Count(gpu.compared)},
                 {"ratio", Number(gpu.ratio)},
                 {"clock_mhz", Time(gpu.clock_mhz)},
                 {"model_clock_mhz", Time(gpu.model_clock_mhz)},
                 {"throttled", Number(gpu.throttled)},
                 {"slow", gpu.slow ? "true" : "false"}});
}

std::string Roof(const ReportRoof& roof) {
  return Object({{"gpu_model", Text(roof.gpu_model)},
                 {"data_type", Text(Name(roof.data_type))},
                 {"tflops", Number(roof.tflops)},
                 {"gbytes_per_second", Number(roof.gbytes_per_second)},
                 {"pairs", Count(roof.pairs)}});
}

std::string Wanted(const ReportWanted& wanted) {
  return Object({{"problem", Text(wanted.problem)},
                 {"environment", Text(wanted.environment)},
                 {"misses", Count(wanted.misses)},
                 {"nodes", Count(wanted.nodes)},
                 {"last_error", Text(wanted.last_error)}});
}

std::string EnvironmentObject(const Environment& e) {
  return Object({{"text", Text(e.ToText())},
                 {"name", Text(e.Name())},
                 {"gpu_model", Text(e.gpu_model)},
                 {"cudnn", Text(CudnnText(e))},
                 {"profile", e.profile ? "true" : "false"}});
}

std::string Problem(const ReportProblem& p) {
  return Object({{"text", Text(p.text)},
                 {"operation", Text(Name(p.operation))},
                 {"data_type", Text(Name(p.data_type))},
                 {"layout", Text(Name(p.layout))},
                 {"flops", Number(p.flops)},
                 {"tensor_bytes", Count(p.tensor_bytes)}});
}

std::string Place(const ReportPlace& p) {
  return Object({{"node", Text(p.node)},
                 {"gpu_uuid", Text(p.gpu_uuid)},
                 {"driver", Text(p.driver)},
                 {"cuda", Text(p.cuda)}});
}

std::string Quoted(const std::string& field) {
  if (field.find_first_of(",\"\n\r") == std::string::npos) return field;
  std::string out = "\"";
  for (const char c : field) out += c == '"' ? std::string("\"\"") : std::string(1, c);
  return out + "\"";
}

std::string CsvLine(std::initializer_list<std::string> fields) {
  std::string line;
  for (const std::string& field : fields) {
    if (&field != fields.begin()) line += ',';
    line += field;
  }
  return line + "\n";
}

std::string CsvTime(double us) { return us > 0 ? Number(us) : "-"; }

}  // namespace

std::string ReportJson(const ReportData& data, const Report& report) {
  const ReportOptions& options = report.options;
  return Object(
      {{"format", "1"},
       {"generated", Text(Timestamp(options.now))},
       {"options",
        Object({{"stale_after_seconds", Number(absl::ToDoubleSeconds(options.stale_after))},
                {"slow_ratio", Number(options.slow_ratio)},
                {"least_change", Number(options.least_change)}})},
       {"headline", Headline(report.headline)},
       {"shares", Array(report.shares, Share)},
       {"disagreements", Array(report.disagreements, Disagreement)},
       {"upgrades", Array(report.upgrades, Upgrade)},
       {"gpus", Array(report.gpus, Gpu)},
       {"roofs", Array(report.roofs, Roof)},
       {"wanted", Array(report.wanted, Wanted)},
       {"environments", Array(data.environments(), EnvironmentObject)},
       {"problems", Array(data.problems(), Problem)},
       {"places", Array(data.places(), Place)},
       {"candidates", Array(data.candidates(), [](const std::string& c) { return Text(c); })},
       {"pairs", Pairs(report)},
       {"rows", Rows(data, report)}});
}

std::string ReportCsv(const ReportData& data) {
  std::string out =
      "problem,environment,gpu_model,cudnn,node,gpu_uuid,driver,cuda,evidence,winner,winner_us,"
      "stock,stock_us,sm_clock_mhz,throttled,workspace_bytes,candidates,tuned,search_seconds\n";
  const auto candidate = [&](int number) {
    return number < 0 ? "-" : Quoted(data.candidates()[static_cast<size_t>(number)]);
  };
  for (const ReportRow& row : data.rows()) {
    const Environment& e = data.environments()[static_cast<size_t>(row.environment)];
    const ReportPlace& place = data.places()[static_cast<size_t>(row.place)];
    const ReportTime* stock = row.TimeOf(row.stock);
    out += CsvLine({Quoted(data.problems()[static_cast<size_t>(row.problem)].text),
                    Quoted(e.ToText()), Quoted(e.gpu_model), CudnnText(e), Quoted(place.node),
                    Quoted(place.gpu_uuid), Quoted(place.driver), Quoted(place.cuda),
                    std::string(Name(row.evidence)), candidate(row.winner),
                    CsvTime(row.timed() ? row.times.front().median_us : 0), candidate(row.stock),
                    CsvTime(stock != nullptr ? stock->median_us : 0), CsvTime(row.sm_clock_mhz),
                    row.throttled ? (*row.throttled ? "true" : "false") : "-",
                    absl::StrCat(row.workspace_bytes), absl::StrCat(row.candidate_count),
                    Timestamp(row.tune_time), Number(absl::ToDoubleSeconds(row.elapsed))});
  }
  return out;
}

}  // namespace convtune
