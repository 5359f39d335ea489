#include "client/cli/commands/report/report_tables.h"

#include <algorithm>
#include <functional>
#include <iterator>
#include <optional>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/cli/input/problem_args.h"
#include "client/cli/output/table.h"
#include "client/cli/output/units.h"

namespace convtune::cli::commands::report {
namespace {

using convtune::report::Report;
using convtune::report::ReportData;
using convtune::report::ReportDisagreement;
using convtune::report::ReportGpu;
using convtune::report::ReportHeadline;
using convtune::report::ReportPair;
using convtune::report::ReportRoof;
using convtune::report::ReportShare;
using convtune::report::ReportUpgrade;
using convtune::report::ReportWanted;
using output::Align;

template <typename Row>
struct Column {
  const char* title;
  std::function<output::Table::Cell(const Row&)> cell;
  Align align = Align::kLeft;
};

// Problems that a GPU's speed takes.
constexpr int kLeastCompared = 8;

std::string Percent(const std::optional<double>& share) {
  return share ? absl::StrFormat("%.1f%%", 100 * *share) : "-";
}
std::string Times(const std::optional<double>& ratio) {
  return ratio ? absl::StrFormat("%.2fx", *ratio) : "-";
}

class Tables {
 public:
  Tables(const ReportData& data, const Report& report, size_t top, int width, bool color)
      : data_(data), report_(report), top_(top), width_(width), color_(color) {}

  std::string Make() {
    Headline();
    if (report_.headline.rows > 0) {
      Shares();
      Stock();
      Disagreements();
      for (const ReportUpgrade& upgrade : report_.upgrades) Upgrade(upgrade);
      Gpus();
      Section<ReportRoof>("Best that was attained", report_.roofs,
                          {{"GPU", [](auto& r) { return r.gpu_model; }},
                           {"TYPE", [](auto& r) { return std::string(Name(r.data_type)); }},
                           {"PROBLEMS", [](auto& r) { return absl::StrCat(r.pairs); }, kRight},
                           {"TFLOP/S", [](auto& r) { return Digits(r.tflops); }, kRight},
                           {"GB/S", [](auto& r) { return Digits(r.gbytes_per_second); }, kRight}});
    }
    Section<ReportWanted>(
        "Most wanted", report_.wanted,
        {{"PROBLEM", [](auto& w) { return input::ShortProblem(w.problem); }},
         {"ENVIRONMENT", [](auto& w) { return w.environment; }},
         {"MISSES", [](auto& w) { return absl::StrCat(w.misses); }, kRight},
         {"WHY NOT", [](auto& w) { return w.last_error.empty() ? "-" : w.last_error; }}});
    return std::move(out_);
  }

 private:
  static constexpr Align kRight = Align::kRight;

  void Headline() {
    const ReportHeadline& h = report_.headline;
    output::Table table({{"HEADLINE"}, {"", kRight}, {""}});
    table.Add({"tunings", absl::StrCat(h.rows),
               absl::StrCat(h.problems, " problems, ", h.nodes, " nodes, ", h.environments,
                            " environments; measured ", h.measured, ", incomplete ", h.incomplete,
                            ", observed ", h.observed, ", heuristic ", h.heuristic)});
    for (const convtune::Environment& e : data_.environments()) {
      if (!e.simulated()) continue;
      table.Add(
          {"simulated", "-",
           absl::StrCat(e.Name(), ": a GPU made of software, which says nothing about a card")});
    }
    table.Add({"coverage", Percent(h.coverage),
               absl::StrCat(h.timed_pairs, " of ", h.pairs + h.wanted_pairs, " problems timed")});
    table.Add({"hit ratio", Percent(h.hit_ratio),
               h.hit_ratio ? "of look-ups since the daemon started"
                           : "no look-ups are known; bundles do not say"});
    table.Add(
        {"faster than stock",
         {Times(h.gain), h.gain && *h.gain > 1.005 ? output::Color::kGreen : output::Color::kNone},
         h.gain ? absl::StrCat("geometric mean of ", h.compared_pairs,
                               " problems; stock is best in ", Percent(h.stock_is_best))
                : "stock choice and winner were not both timed"});
    table.Add({"start-up time saved", FormatSeconds(h.search_seconds),
               "of searching, when every node starts again"});
    table.Add({"stale", Percent(h.stale),
               absl::StrCat("older than ", output::FormatAge(report_.options.stale_after),
                            ", or of a cuDNN that its GPU has left")});
    AddBad(&table, "disagreements", IsShared(), h.disagreements,
           "problems on which nodes differ beyond noise");
    AddBad(&table, "regressions", !report_.upgrades.empty(), h.regressions,
           "problems that an upgrade made slower");
    AddBad(&table, "slow GPUs", IsCompared(), h.slow_gpus, "against others of their model");
    out_ += table.Render(width_, color_);
    if (h.rows > 0 && h.timed_pairs == 0) {
      out_ +=
          "\nNothing was timed: winners are choices of heuristics or of programs, not results "
          "of measurements.\n";
    }
  }

  // "-" where there was nothing to compare.
  static void AddBad(output::Table* table, const std::string& name, bool known, int count,
                     const std::string& words) {
    table->Add({name,
                {known ? absl::StrCat(count) : "-",
                 count > 0 ? output::Color::kRed : output::Color::kNone},
                words});
  }

  bool IsShared() const {
    return std::any_of(report_.pairs.begin(), report_.pairs.end(),
                       [](const ReportPair& pair) { return pair.timed_nodes > 1; });
  }
  bool IsCompared() const {
    return std::any_of(report_.gpus.begin(), report_.gpus.end(),
                       [](const ReportGpu& gpu) { return gpu.compared >= kLeastCompared; });
  }

  void Shares() {
    Section<ReportShare>("Which algorithms win", report_.shares,
                         {{"GPU", [](auto& s) { return s.gpu_model; }},
                          {"TYPE", [](auto& s) { return std::string(Name(s.data_type)); }},
                          {"LAYOUT", [](auto& s) { return std::string(Name(s.layout)); }},
                          {"OPERATION", [](auto& s) { return std::string(Name(s.operation)); }},
                          {"PROBLEMS", [](auto& s) { return absl::StrCat(s.pairs); }, kRight},
                          {"WINNERS BY ENGINE", Engines}});
  }

  static std::string Engines(const ReportShare& share) {
    std::string words;
    for (size_t i = 0; i < share.engines.size() && i < 4; ++i) {
      absl::StrAppend(&words, i > 0 ? ", " : "", share.engines[i].first, " ",
                      Percent(static_cast<double>(share.engines[i].second) / share.pairs));
    }
    if (share.engines.size() > 4) absl::StrAppend(&words, ", +", share.engines.size() - 4);
    return words;
  }

  void Stock() {
    std::vector<ReportPair> slower;
    for (const ReportPair& pair : report_.pairs) {
      if (pair.winner_us > 0 && pair.stock_us > pair.winner_us) slower.push_back(pair);
    }
    std::stable_sort(slower.begin(), slower.end(), [](const ReportPair& a, const ReportPair& b) {
      return a.stock_us - a.winner_us > b.stock_us - b.winner_us;
    });
    Section<ReportPair>("Stock choice against measured, most time first", slower,
                        {{"PROBLEM", [this](auto& p) { return Problem(p); }},
                         {"ENVIRONMENT", [this](auto& p) { return Environment(p); }},
                         {"STOCK", [](auto& p) { return Micros(p.stock_us); }, kRight},
                         {"WINNER", [](auto& p) { return Micros(p.winner_us); }, kRight},
                         {"GAIN", [](auto& p) { return Times(p.stock_us / p.winner_us); }, kRight},
                         {"WINNER", [this](auto& p) { return Candidate(p.winner); }}});
  }

  void Disagreements() {
    const auto nodes = [](const ReportDisagreement& d) {
      size_t differ = 0;
      for (const auto& other : d.others) differ += other.places.size();
      return absl::StrCat(differ, " of ", d.nodes);
    };
    const auto worst = [](const ReportDisagreement& d) {
      double ratio = 1;
      for (const auto& other : d.others) ratio = std::max(ratio, other.cost_ratio);
      return Times(ratio);
    };
    Section<ReportDisagreement>(
        "Nodes that disagree, dearest first", report_.disagreements,
        {{"PROBLEM", [this](auto& d) { return Problem(d); }},
         {"ENVIRONMENT", [this](auto& d) { return Environment(d); }},
         {"NODES", nodes, kRight},
         {"WORST", worst, kRight},
         {"COMMON WINNER", [this](auto& d) { return Candidate(d.winner); }},
         {"FOUND BETTER", [this](auto& d) { return Candidate(d.others[0].candidate); }}});
  }

  void Upgrade(const ReportUpgrade& upgrade) {
    std::vector<ReportUpgrade::Point> slower;
    for (const ReportUpgrade::Point& point : upgrade.points) {
      if (point.beyond_noise && point.to_us > point.from_us) slower.push_back(point);
    }
    const bool cudnn = upgrade.kind == ReportUpgrade::Kind::kCudnn;
    const std::string title = absl::StrCat(
        cudnn ? "cuDNN " : "Driver ", upgrade.from, " to ", upgrade.to, ", ", upgrade.subject, ": ",
        upgrade.points.size(), " problems, ", upgrade.regressions, " slower, ",
        upgrade.improvements, " faster, ", Times(upgrade.ratio), " of the time");
    if (slower.empty()) {
      absl::StrAppend(&out_, "\n", output::Paint(title, output::Color::kBold, color_), "\n");
    }
    Section<ReportUpgrade::Point>(
        title, slower,
        {{"PROBLEM", [this](auto& p) { return Problem(p); }},
         {"BEFORE", [](auto& p) { return Micros(p.from_us); }, kRight},
         {"AFTER", [](auto& p) { return Micros(p.to_us); }, kRight},
         {"RATIO", [](auto& p) { return Times(p.to_us / p.from_us); }, kRight},
         {"BEFORE", [this](auto& p) { return Candidate(p.from_winner); }},
         {"AFTER", [this](auto& p) { return Candidate(p.to_winner); }}});
  }

  void Gpus() {
    std::vector<ReportGpu> slow;
    std::copy_if(report_.gpus.begin(), report_.gpus.end(), std::back_inserter(slow),
                 [](const ReportGpu& gpu) { return gpu.slow; });
    const auto clock = [](double mhz) { return mhz > 0 ? absl::StrFormat("%.0f MHz", mhz) : "-"; };
    Section<ReportGpu>("Slow GPUs", slow,
                       {{"NODE", [](auto& g) { return g.node; }},
                        {"MODEL", [](auto& g) { return g.gpu_model; }},
                        {"RATIO", [](auto& g) { return Times(g.ratio); }, kRight},
                        {"PROBLEMS", [](auto& g) { return absl::StrCat(g.compared); }, kRight},
                        {"CLOCK", [&](auto& g) { return clock(g.clock_mhz); }, kRight},
                        {"MODEL'S", [&](auto& g) { return clock(g.model_clock_mhz); }, kRight},
                        {"THROTTLED", [](auto& g) { return Percent(g.throttled); }, kRight},
                        {"GPU", [](auto& g) { return g.gpu_uuid.empty() ? "-" : g.gpu_uuid; }}});
  }

  // The first rows of them; nothing where there is nothing.
  template <typename Row>
  void Section(const std::string& title, const std::vector<Row>& rows,
               const std::vector<Column<Row>>& columns) {
    if (rows.empty()) return;
    std::vector<output::Table::Column> heads;
    for (const Column<Row>& column : columns) heads.push_back({column.title, column.align});
    output::Table table(heads);
    for (size_t i = 0; i < std::min(top_, rows.size()); ++i) {
      std::vector<output::Table::Cell> cells;
      for (const Column<Row>& column : columns) cells.push_back(column.cell(rows[i]));
      table.Add(std::move(cells));
    }
    absl::StrAppend(
        &out_, "\n", output::Paint(title, output::Color::kBold, color_),
        rows.size() > top_ ? absl::StrCat(" (the first ", top_, " of ", rows.size(), ")") : "",
        "\n", table.Render(width_, color_));
  }

  static std::string Digits(double value) { return absl::StrFormat("%.4g", value); }
  static std::string Micros(double us) { return output::FormatMicroseconds(us); }
  static std::string FormatSeconds(double seconds) {
    // As on the page.
    if (seconds < 120) return absl::StrFormat("%.3g s", seconds);
    if (seconds < 7200) return absl::StrFormat("%.3g min", seconds / 60);
    if (seconds < 48 * 3600) return absl::StrFormat("%.3g h", seconds / 3600);
    return absl::StrFormat("%.3g d", seconds / 86'400);
  }
  template <typename Row>
  std::string Problem(const Row& row) const {
    return input::ShortProblem(data_.ProblemOf(row).text);
  }
  template <typename Row>
  std::string Environment(const Row& row) const {
    const convtune::Environment& environment = data_.EnvironmentOf(row);
    return absl::StrCat(environment.Name(), " ", environment.cudnn.ToText());
  }
  std::string Candidate(int number) const {
    return number < 0 ? "-" : data_.candidates()[static_cast<size_t>(number)];
  }

  const ReportData& data_;
  const Report& report_;
  const size_t top_;
  const int width_;
  const bool color_;
  std::string out_;
};

}  // namespace

std::string ReportTables(const ReportData& data, const Report& report, size_t top, int width,
                         bool color) {
  return Tables(data, report, top, width, color).Make();
}

}  // namespace convtune::cli::commands::report
