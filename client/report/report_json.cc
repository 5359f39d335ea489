#include "client/report/report_json.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <initializer_list>
#include <limits>
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

void AppendNumber(double value, std::string* out) {
  if (!std::isfinite(value)) {
    *out += "null";
    return;
  }
  char text[32];
  const auto end = std::to_chars(text, text + sizeof text, value, std::chars_format::general, 7);
  out->append(text, end.ptr);
}

std::string Number(double value) {
  std::string text;
  AppendNumber(value, &text);
  return text;
}
std::string Number(const std::optional<double>& value) { return value ? Number(*value) : "null"; }
std::string Count(int64_t value) { return absl::StrCat(value); }
std::string Index(int number) { return number < 0 ? "null" : absl::StrCat(number); }
// A time that nothing was measured for is none.
std::string Time(double us) { return us > 0 ? Number(us) : "null"; }

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

// An array of arrays of numbers, hundreds of thousands of them.
class Table {
 public:
  Table& Row() {
    if (text_.size() > 1) text_ += "],";
    text_ += '[';
    first_ = true;
    return *this;
  }
  Table& Count(int64_t value) {
    Separate();
    char text[24];
    const auto end = std::to_chars(text, text + sizeof text, value);
    text_.append(text, end.ptr);
    return *this;
  }
  Table& Number(double value) {
    Separate();
    AppendNumber(value, &text_);
    return *this;
  }
  Table& Index(int number) { return number < 0 ? Word("null") : Count(number); }
  Table& Time(double us) { return us > 0 ? Number(us) : Word("null"); }
  Table& Bool(bool value) { return Word(value ? "true" : "false"); }
  Table& Bool(const std::optional<bool>& value) { return value ? Bool(*value) : Word("null"); }
  std::string Take() { return std::move(text_ += text_.size() > 1 ? "]]" : "]"); }

 private:
  Table& Word(std::string_view word) {
    Separate();
    text_ += word;
    return *this;
  }
  void Separate() {
    if (!first_) text_ += ',';
    first_ = false;
  }

  std::string text_ = "[";
  bool first_ = true;
};

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
  Table values;
  for (const ReportPair& p : report.pairs) {
    values.Row().Count(p.environment).Count(p.problem).Count(p.nodes).Count(p.timed_nodes);
    values.Count(static_cast<int>(p.evidence)).Index(p.winner).Index(p.stock);
    values.Time(p.winner_us).Time(p.stock_us).Number(p.search_seconds).Count(p.stale_nodes);
    values.Count(p.disagreeing_nodes).Number(p.disagreement_us);
  }
  return absl::StrCat(
      R"({"columns":["environment","problem","nodes","timed_nodes","evidence","winner","stock",)",
      R"("winner_us","stock_us","search_seconds","stale_nodes","disagreeing_nodes",)",
      R"("disagreement_us"],"values":)", values.Take(), "}");
}

// The newest rows that the document has room for, in their order.
std::vector<const ReportRow*> RowsOfDocument(const ReportData& data, size_t most) {
  std::vector<int64_t> times;
  int64_t oldest = std::numeric_limits<int64_t>::min();
  times.reserve(data.rows().size() > most ? data.rows().size() : 0);
  size_t at_oldest = most;  // rows of that very time that there is room for
  if (data.rows().size() > most) {
    for (const ReportRow& row : data.rows()) times.push_back(row.tune_time_us);
    const auto last = times.begin() + static_cast<ptrdiff_t>(times.size() - most);
    std::nth_element(times.begin(), last, times.end());
    oldest = *last;
    at_oldest = static_cast<size_t>(std::count(last, times.end(), oldest));
  }
  std::vector<const ReportRow*> rows;
  for (const ReportRow& row : data.rows()) {
    if (row.tune_time_us < oldest) continue;
    if (row.tune_time_us == oldest && data.rows().size() > most) {
      if (at_oldest == 0) continue;
      --at_oldest;
    }
    rows.push_back(&row);
  }
  return rows;
}

std::string Rows(const ReportData& data, const Report& report) {
  const std::vector<const ReportRow*> rows = RowsOfDocument(data, report.options.most_rows);
  Table values;
  for (const ReportRow* each : rows) {
    const ReportRow& row = *each;
    const bool stale = report.stale_rows[static_cast<size_t>(each - data.rows().data())] != 0;
    const ReportTime* stock = row.TimeOf(row.stock);
    values.Row().Count(row.environment).Count(row.problem).Count(row.place);
    values.Count(static_cast<int>(row.evidence)).Index(row.winner).Index(row.stock);
    values.Time(row.timed() ? row.times.front().median_us : 0);
    values.Time(stock != nullptr ? stock->median_us : 0).Time(row.sm_clock_mhz);
    values.Bool(row.throttled).Count(row.workspace_bytes).Count(row.candidate_count);
    values.Count(absl::ToUnixSeconds(absl::FromUnixMicros(row.tune_time_us)));
    values.Number(row.elapsed_seconds()).Bool(stale);
  }
  return absl::StrCat(
      R"({"columns":["environment","problem","place","evidence","winner","stock","winner_us",)",
      R"("stock_us","sm_clock_mhz","throttled","workspace_bytes","candidates","tune_time",)",
      R"("search_seconds","stale"],"left_out":)", data.rows().size() - rows.size(), R"(,"values":)",
      values.Take(), "}");
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
  Table values;
  for (const ReportUpgrade::Point& p : u.points) {
    values.Row().Count(p.problem).Count(p.environment).Number(p.from_us).Number(p.to_us);
    values.Index(p.from_winner).Index(p.to_winner).Bool(p.beyond_noise);
  }
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
       {"values", values.Take()}});
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

}  // namespace convtune
