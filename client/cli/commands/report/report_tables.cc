#include "client/cli/commands/report/report_tables.h"

#include <algorithm>
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
      Roofs();
    }
    Wanted();
    return std::move(out_);
  }

 private:
  void Headline() {
    const ReportHeadline& h = report_.headline;
    output::Table table({{"HEADLINE"}, {"", output::Align::kRight}, {""}});
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
    output::Table table({{"GPU"},
                         {"TYPE"},
                         {"LAYOUT"},
                         {"OPERATION"},
                         {"PROBLEMS", output::Align::kRight},
                         {"WINNERS BY ENGINE"}});
    for (const ReportShare& share : First(report_.shares)) {
      std::string words;
      for (size_t i = 0; i < share.engines.size() && i < 4; ++i) {
        absl::StrAppend(&words, i > 0 ? ", " : "", share.engines[i].first, " ",
                        Percent(static_cast<double>(share.engines[i].second) / share.pairs));
      }
      if (share.engines.size() > 4) absl::StrAppend(&words, ", +", share.engines.size() - 4);
      table.Add({share.gpu_model, std::string(Name(share.data_type)),
                 std::string(Name(share.layout)), std::string(Name(share.operation)),
                 absl::StrCat(share.pairs), words});
    }
    Show("Which algorithms win", report_.shares.size(), table);
  }

  void Stock() {
    std::vector<const ReportPair*> slower;
    for (const ReportPair& pair : report_.pairs) {
      if (pair.winner_us > 0 && pair.stock_us > pair.winner_us) slower.push_back(&pair);
    }
    std::stable_sort(slower.begin(), slower.end(), [](const ReportPair* a, const ReportPair* b) {
      return a->stock_us - a->winner_us > b->stock_us - b->winner_us;
    });
    output::Table table({{"PROBLEM"},
                         {"ENVIRONMENT"},
                         {"STOCK", output::Align::kRight},
                         {"WINNER", output::Align::kRight},
                         {"GAIN", output::Align::kRight},
                         {"WINNER"}});
    for (const ReportPair* pair : First(slower)) {
      table.Add({Problem(pair->problem), Environment(pair->environment),
                 output::FormatMicroseconds(pair->stock_us),
                 output::FormatMicroseconds(pair->winner_us),
                 Times(pair->stock_us / pair->winner_us), Candidate(pair->winner)});
    }
    Show("Stock choice against measured, most time first", slower.size(), table);
  }

  void Disagreements() {
    output::Table table({{"PROBLEM"},
                         {"ENVIRONMENT"},
                         {"NODES", output::Align::kRight},
                         {"WORST", output::Align::kRight},
                         {"COMMON WINNER"},
                         {"FOUND BETTER"}});
    for (const ReportDisagreement& d : First(report_.disagreements)) {
      size_t nodes = 0;
      double worst = 1;
      for (const auto& other : d.others) {
        nodes += other.places.size();
        worst = std::max(worst, other.cost_ratio);
      }
      table.Add({Problem(d.problem), Environment(d.environment),
                 absl::StrCat(nodes, " of ", d.nodes), Times(worst), Candidate(d.winner),
                 Candidate(d.others[0].candidate)});
    }
    Show("Nodes that disagree, dearest first", report_.disagreements.size(), table);
  }

  void Upgrade(const ReportUpgrade& upgrade) {
    output::Table table({{"PROBLEM"},
                         {"BEFORE", output::Align::kRight},
                         {"AFTER", output::Align::kRight},
                         {"RATIO", output::Align::kRight},
                         {"BEFORE"},
                         {"AFTER"}});
    size_t shown = 0;
    for (const ReportUpgrade::Point& point : upgrade.points) {
      if (!point.beyond_noise || point.to_us <= point.from_us || shown == top_) continue;
      ++shown;
      table.Add({Problem(point.problem), output::FormatMicroseconds(point.from_us),
                 output::FormatMicroseconds(point.to_us), Times(point.to_us / point.from_us),
                 Candidate(point.from_winner), Candidate(point.to_winner)});
    }
    const bool cudnn = upgrade.kind == ReportUpgrade::Kind::kCudnn;
    const std::string title = absl::StrCat(
        cudnn ? "cuDNN " : "Driver ", upgrade.from, " to ", upgrade.to, ", ", upgrade.subject, ": ",
        upgrade.points.size(), " problems, ", upgrade.regressions, " slower, ",
        upgrade.improvements, " faster, ", Times(upgrade.ratio), " of the time");
    if (table.empty()) {
      absl::StrAppend(&out_, "\n", output::Paint(title, output::Color::kBold, color_), "\n");
    } else {
      Show(title, static_cast<size_t>(upgrade.regressions), table);
    }
  }

  void Gpus() {
    std::vector<const ReportGpu*> slow;
    for (const ReportGpu& gpu : report_.gpus) {
      if (gpu.slow) slow.push_back(&gpu);
    }
    output::Table table({{"NODE"},
                         {"MODEL"},
                         {"RATIO", output::Align::kRight},
                         {"PROBLEMS", output::Align::kRight},
                         {"CLOCK", output::Align::kRight},
                         {"MODEL'S", output::Align::kRight},
                         {"THROTTLED", output::Align::kRight},
                         {"GPU"}});
    const auto clock = [](double mhz) { return mhz > 0 ? absl::StrFormat("%.0f MHz", mhz) : "-"; };
    for (const ReportGpu* gpu : First(slow)) {
      table.Add({gpu->node, gpu->gpu_model, Times(gpu->ratio), absl::StrCat(gpu->compared),
                 clock(gpu->clock_mhz), clock(gpu->model_clock_mhz), Percent(gpu->throttled),
                 gpu->gpu_uuid.empty() ? "-" : gpu->gpu_uuid});
    }
    Show("Slow GPUs", slow.size(), table);
  }

  void Roofs() {
    output::Table table({{"GPU"},
                         {"TYPE"},
                         {"PROBLEMS", output::Align::kRight},
                         {"TFLOP/S", output::Align::kRight},
                         {"GB/S", output::Align::kRight}});
    for (const ReportRoof& roof : First(report_.roofs)) {
      table.Add({roof.gpu_model, std::string(Name(roof.data_type)), absl::StrCat(roof.pairs),
                 absl::StrFormat("%.4g", roof.tflops),
                 absl::StrFormat("%.4g", roof.gbytes_per_second)});
    }
    Show("Best that was attained", report_.roofs.size(), table);
  }

  void Wanted() {
    output::Table table(
        {{"PROBLEM"}, {"ENVIRONMENT"}, {"MISSES", output::Align::kRight}, {"WHY NOT"}});
    for (const ReportWanted& wanted : First(report_.wanted)) {
      table.Add({input::ShortProblem(wanted.problem), wanted.environment,
                 absl::StrCat(wanted.misses), wanted.last_error.empty() ? "-" : wanted.last_error});
    }
    Show("Most wanted", report_.wanted.size(), table);
  }

  // Nothing where there is nothing.
  void Show(const std::string& title, size_t all, const output::Table& table) {
    if (table.empty()) return;
    absl::StrAppend(&out_, "\n", output::Paint(title, output::Color::kBold, color_),
                    all > top_ ? absl::StrCat(" (the first ", top_, " of ", all, ")") : "", "\n",
                    table.Render(width_, color_));
  }

  template <typename List>
  List First(const List& list) const {
    return List(list.begin(), list.begin() + static_cast<ptrdiff_t>(std::min(top_, list.size())));
  }

  static std::string FormatSeconds(double seconds) {
    // As on the page.
    if (seconds < 120) return absl::StrFormat("%.3g s", seconds);
    if (seconds < 7200) return absl::StrFormat("%.3g min", seconds / 60);
    if (seconds < 48 * 3600) return absl::StrFormat("%.3g h", seconds / 3600);
    return absl::StrFormat("%.3g d", seconds / 86'400);
  }
  std::string Problem(int number) const {
    return input::ShortProblem(data_.problems()[static_cast<size_t>(number)].text);
  }
  std::string Environment(int number) const {
    const auto& environment = data_.environments()[static_cast<size_t>(number)];
    return absl::StrCat(environment.Name(), " ", environment.cudnn.major, ".",
                        environment.cudnn.minor, ".", environment.cudnn.patch);
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
