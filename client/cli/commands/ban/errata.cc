#include "client/cli/commands/ban/bans.h"

#include <algorithm>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <ostream>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/cli/output/units.h"
#include "proto/base/errors.h"
#include "proto/base/status_macros.h"
#include "proto/model/tuning/ban.h"

namespace convtune::cli::commands::ban {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::pair<std::string_view, v1::Operation> kOperations[] = {
    {"ConvFwd", v1::OPERATION_FWD},
    {"ConvBwdData", v1::OPERATION_BWD_DATA},
    {"ConvBwdFilter", v1::OPERATION_BWD_FILTER}};

absl::Status Refuse(std::string_view words) {
  return absl::InvalidArgumentError(std::string(words));
}

int64_t NumberOf(const CudnnVersion& version) {
  return (version.major < 9 ? 1000 : 10000) * static_cast<int64_t>(version.major) +
         100 * static_cast<int64_t>(version.minor) + version.patch;
}

// A version of the rule; nullopt: no limit, which -1 stands for too.
absl::StatusOr<std::optional<int64_t>> ReadVersion(const Json& rule, const char* key) {
  if (!rule.contains(key)) return std::nullopt;
  const Json& value = rule[key];
  constexpr int64_t kMost = 9999999;
  if (!value.is_number_integer() || value.get<int64_t>() < -1 || value.get<int64_t>() > kMost) {
    return Refuse(absl::StrCat(key, " must be a number such as 91900, or -1"));
  }
  if (value.get<int64_t>() == -1) return std::nullopt;
  return value.get<int64_t>();
}

absl::StatusOr<std::string> ReadCandidate(const Json& rule) {
  if (!rule.contains("engine") || !rule["engine"].is_number_integer()) {
    return Refuse("engine must be a number");
  }
  std::string text = absl::StrCat("graph:eng", rule["engine"].get<int64_t>());
  if (!rule.contains("knob")) return text;
  if (!rule["knob"].is_array()) return Refuse("knob must be a list of texts such as \"k2=3\"");
  for (const Json& knob : rule["knob"]) {
    if (!knob.is_string()) return Refuse("knob must be a list of texts such as \"k2=3\"");
    absl::StrAppend(&text, ",", knob.get<std::string>());
  }
  return text;
}

absl::StatusOr<v1::Ban> ReadRule(const Json& rule) {
  constexpr std::string_view kKeys[] = {"rule_id", "operation",           "engine",
                                        "knob",    "cudnn_version_start", "cudnn_version_end"};
  std::vector<std::string> unknown;
  for (const auto& [key, value] : rule.items()) {
    if (std::find(std::begin(kKeys), std::end(kKeys), key) == std::end(kKeys)) {
      unknown.push_back(key);
    }
  }
  if (!unknown.empty()) {
    return Refuse(absl::StrCat("a ban has no condition for ", absl::StrJoin(unknown, ", ")));
  }
  v1::Ban ban;
  const std::string operation =
      rule.contains("operation") && rule["operation"].is_string() ? rule["operation"] : "";
  for (const auto& [name, value] : kOperations) {
    if (operation == name) ban.set_operation(value);
  }
  if (ban.operation() == v1::OPERATION_UNSPECIFIED) {
    return Refuse(absl::StrCat("operation must be ConvFwd, ConvBwdData or ConvBwdFilter, is \"",
                               operation, "\""));
  }
  ASSIGN_OR_RETURN(const std::string candidate, ReadCandidate(rule));
  const absl::StatusOr<CandidatePattern> pattern = CandidatePattern::Parse(candidate);
  if (!pattern.ok()) {
    return Refuse(absl::StrCat("engine and knob: ", std::string(pattern.status().message())));
  }
  ban.set_candidate(pattern->ToText());
  ASSIGN_OR_RETURN(const std::optional<int64_t> start, ReadVersion(rule, "cudnn_version_start"));
  ASSIGN_OR_RETURN(const std::optional<int64_t> end, ReadVersion(rule, "cudnn_version_end"));
  CudnnRange range;
  if (start) range.start = CudnnVersion::FromNumber(*start);
  if (end) range.end = CudnnVersion::FromNumber(*end);
  if (!CudnnRange::Parse(range.ToText()).ok()) {
    return Refuse(absl::StrCat("no version is from ", start.value_or(0), " to below ", *end));
  }
  ban.set_cudnn(range.ToText());
  return ban;
}

// Why no rule can stand for the ban; empty: one can.
std::string WhyNoRule(const v1::Ban& ban, const CandidatePattern& pattern) {
  std::vector<std::string> conditions;
  if (pattern.api == Api::kLegacy) return "rules name no legacy algorithms";
  if (!pattern.number) return "rules name one engine each";
  for (const auto& [type, setting] : pattern.knobs) {
    if (!setting) return "rules name knobs with their setting";
  }
  if (!ban.gpu().empty()) conditions.push_back("GPU");
  if (ban.data_type() != v1::DATA_TYPE_UNSPECIFIED) conditions.push_back("data type");
  if (ban.layout() != v1::TENSOR_LAYOUT_UNSPECIFIED) conditions.push_back("layout");
  if (conditions.empty()) return "";
  return absl::StrCat("rules have no condition for ", absl::StrJoin(conditions, ", "),
                      "; without it more would be left out");
}

Json RuleOf(const v1::Ban& ban, const CandidatePattern& pattern, std::string_view operation) {
  Json rule;
  rule["rule_id"] = absl::StrCat(NamesOf(ban), ": ", ban.reason());
  rule["operation"] = std::string(operation);
  rule["engine"] = *pattern.number;
  Json knobs = Json::array();
  for (const auto& [type, setting] : pattern.knobs) {
    knobs.push_back(absl::StrCat("k", type, "=", *setting));
  }
  rule["knob"] = std::move(knobs);
  const CudnnRange range = CudnnRange::Parse(ban.cudnn()).value_or(CudnnRange());
  rule["cudnn_version_start"] = NumberOf(range.start);
  rule["cudnn_version_end"] = range.end ? NumberOf(*range.end) : -1;
  return rule;
}

}  // namespace

std::string NamesOf(const v1::Ban& ban) {
  if (ban.fleet_ban() == 0) return ban.name();
  return absl::StrCat(ban.name(), ban.name().empty() ? "" : ", ", "fleet ban ", ban.fleet_ban());
}

absl::StatusOr<ErrataBans> ReadErrata(std::istream& in, const std::string& name) {
  const Json document = Json::parse(in, nullptr, /*allow_exceptions=*/false);
  if (!document.is_object() || !document.contains("rules") || !document["rules"].is_array()) {
    return InvalidArgument(name, ": must be a JSON object with a list \"rules\"");
  }
  if (document.contains("version") && document["version"] != 1) {
    return InvalidArgument(name, ": version must be 1");
  }
  ErrataBans out;
  size_t place = 0;
  for (const Json& rule : document["rules"]) {
    std::string subject = absl::StrCat("rule ", ++place);
    if (!rule.is_object()) {
      out.refused.push_back(absl::StrCat(subject, " is not taken: must be a JSON object"));
      continue;
    }
    std::string id;
    if (rule.contains("rule_id") && rule["rule_id"].is_string()) id = rule["rule_id"];
    if (!id.empty()) absl::StrAppend(&subject, " (", id, ")");
    absl::StatusOr<v1::Ban> ban = ReadRule(rule);
    if (!ban.ok()) {
      out.refused.push_back(absl::StrCat(subject, " is not taken: ", ban.status().message()));
      continue;
    }
    ban->set_reason(absl::StrCat("errata: ", id.empty() ? absl::StrCat("rule ", place) : id));
    if (ban->operation() == v1::OPERATION_FWD) {
      out.remarks.push_back(
          absl::StrCat(subject, ": the ban also holds for convolutions with an epilogue"));
    }
    out.bans.push_back(*std::move(ban));
  }
  return out;
}

app::ExitCode PrintErrata(app::Context& context, const std::vector<v1::Ban>& bans) {
  Json document = {{"version", 1}, {"rules", Json::array()}};
  app::ExitCode code = app::ExitCode::kDone;
  for (const v1::Ban& ban : bans) {
    const std::string name = NamesOf(ban);
    const absl::StatusOr<CandidatePattern> pattern = CandidatePattern::Parse(ban.candidate());
    const std::string why =
        pattern.ok() ? WhyNoRule(ban, *pattern) : "this program does not know its candidate's form";
    if (!why.empty()) {
      context.SayError(name, " is left out: ", why);
      code = app::ExitCode::kFailed;
      continue;
    }
    const bool any = ban.operation() == v1::OPERATION_UNSPECIFIED;
    for (const auto& [operation, value] : kOperations) {
      if (!any && ban.operation() != value) continue;
      document["rules"].push_back(RuleOf(ban, *pattern, operation));
    }
    if (any || ban.operation() == v1::OPERATION_FWD) {
      context.Say(name, ": its rule does not hold for graphs with an epilogue");
    }
    if (ban.has_expire_time()) {
      context.Say(name, ": its rule does not end at ", output::FormatTimestamp(ban.expire_time()));
    }
  }
  context.io().out << document.dump(2, ' ', false, Json::error_handler_t::replace) << "\n";
  return code;
}

}  // namespace convtune::cli::commands::ban
