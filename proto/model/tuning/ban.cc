#include "proto/model/tuning/ban.h"

#include <fnmatch.h>

#include <algorithm>

#include "absl/status/status.h"
#include "absl/time/civil_time.h"
#include "proto/base/status_macros.h"
#include "proto/base/strings.h"
#include "proto/model/text.h"
#include "proto/model/tuning/note_rules.h"
#include "proto/model/violation.h"

namespace convtune {
namespace {

constexpr size_t kMostNumbers = 3;                   // of a version
constexpr absl::CivilDay kErrataRead(2026, 11, 26);  // what kErrata holds

// The numbers of "9.20", 1 to 3 of them.
absl::StatusOr<std::vector<int>> ReadVersion(std::string_view text) {
  std::vector<int> numbers;
  for (const std::string_view piece : Split(text, '.')) {
    int64_t value = 0;
    if (!ReadInt64(piece, &value).ok() || value < 0 || value > 9999 ||
        numbers.size() == kMostNumbers) {
      return absl::InvalidArgumentError(
          Concat("must be versions such as \"<9.20\" or \">=9.12,<9.20\", is ", Quote(text)));
    }
    numbers.push_back(static_cast<int>(value));
  }
  return numbers;
}

CudnnVersion VersionOf(std::vector<int> numbers) {
  numbers.resize(kMostNumbers);
  return {numbers[0], numbers[1], numbers[2]};
}

// The first version behind all that begin with these numbers.
CudnnVersion Behind(std::vector<int> numbers) {
  ++numbers.back();
  return VersionOf(std::move(numbers));
}

bool HoldsFor(const Ban& ban, const ConvProblem& problem) {
  return (!ban.data_type || *ban.data_type == problem.data_type()) &&
         (!ban.layout || *ban.layout == problem.layout()) &&
         (ban.spatial_rank == 0 || ban.spatial_rank == problem.spatial_rank());
}

bool HoldsFor(const Ban& ban, const Environment& environment) {
  if (!ban.cudnn.Has(environment.cudnn)) return false;
  if (ban.gpu.empty()) return true;
  // A model's "*90" must not be the compute capability 9.0.
  const std::string gpu = ban.gpu.starts_with("sm-")
                              ? Concat("sm-", environment.cc_major, environment.cc_minor)
                              : Slug(environment.gpu_model);
  return fnmatch(ban.gpu.c_str(), gpu.c_str(), 0) == 0;
}

}  // namespace

absl::StatusOr<CudnnRange> CudnnRange::Parse(std::string_view text) {
  constexpr size_t kMostRange = 64;
  CudnnRange range;
  if (text.empty()) return range;
  if (text.size() > kMostRange) return absl::InvalidArgumentError("must be at most 64 bytes");
  const auto from = [&range](const CudnnVersion& version) {
    if (range.start < version) range.start = version;
  };
  const auto until = [&range](const CudnnVersion& version) {
    if (!range.end || version < *range.end) range.end = version;
  };
  for (std::string_view part : Split(text, ',')) {
    part = Strip(part);
    const bool below = ConsumeFront(&part, "<");
    const bool above = !below && ConsumeFront(&part, ">");
    const bool equal = ConsumeFront(&part, "=") || (!below && !above);
    ASSIGN_OR_RETURN(const std::vector<int> numbers, ReadVersion(Strip(part)));
    if (!below) from(equal ? VersionOf(numbers) : Behind(numbers));
    if (!above) until(equal ? Behind(numbers) : VersionOf(numbers));
  }
  if (range.end && *range.end <= range.start) {
    return absl::InvalidArgumentError(Concat("no version is ", Quote(text)));
  }
  return range;
}

std::string CudnnRange::ToText() const {
  std::string text;
  if (start != CudnnVersion()) AppendTo(&text, ">=", start.ToText());
  if (end) AppendTo(&text, text.empty() ? "<" : ",<", end->ToText());
  return text;
}

bool CudnnRange::Has(const CudnnVersion& version) const {
  return start <= version && (!end || version < *end);
}

absl::StatusOr<std::string> ReadGpuGlob(std::string_view text) {
  constexpr size_t kMostGlob = 128;
  std::string glob;
  for (const char c : LowerCase(text)) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '?';
    if (c == '*' && glob.ends_with('*')) continue;  // one says as much as several
    if (plain || c == '*') {
      glob += c;
    } else if (c == ' ' || c == '-' || c == '_' || c == '.' || c == '/') {
      if (!glob.ends_with('-')) glob += '-';
    } else {
      return absl::InvalidArgumentError(
          Concat("must be a GPU's name in which * stands for any text, is ", Quote(text)));
    }
  }
  // "sm120" and "sm_120".
  if (glob.size() > 2 && glob.starts_with("sm") && glob[2] >= '0' && glob[2] <= '9') {
    glob.insert(2, "-");
  }
  if (!glob.empty() && glob.find_first_not_of("0123456789-") == std::string::npos) {
    return absl::InvalidArgumentError(
        Concat("must be a GPU's name, or a compute capability such as sm_120, is ", Quote(text)));
  }
  if (glob.size() > kMostGlob ||
      std::count(glob.begin(), glob.end(), '*') > 4) {  // more would be slow to match
    return absl::InvalidArgumentError("must have at most 128 characters and 4 of *");
  }
  return glob;
}

std::string BanNameAndReason(std::string_view name, int64_t fleet_ban, std::string_view reason) {
  if (fleet_ban == 0) return Concat(name, " (", reason, ")");
  if (name.empty()) return Concat("fleet ban ", fleet_ban, " (", reason, ")");
  return Concat(name, " (fleet ban ", fleet_ban, ": ", reason, ")");
}

std::string Ban::Name() const {
  if (shipped()) return Concat("shipped/", number - kShipped);
  return number == 0 && fleet_ban != 0 ? Concat("fleet ban ", fleet_ban) : Concat("bans/", number);
}

std::string Ban::NameAndReason() const {
  const std::string name = number == 0 && fleet_ban != 0 ? "" : Name();
  return BanNameAndReason(name, fleet_ban, reason);
}

absl::Status Ban::CheckExpiry(absl::Time now) const {
  if (!expire_time || *expire_time >= now + absl::Seconds(1)) return absl::OkStatus();
  return ViolationError({"ban.expire_time", "must be at least 1 s from now"});
}

bool Ban::HasRuleOf(const Ban& other) const {
  return candidate == other.candidate && cudnn == other.cudnn && gpu == other.gpu &&
         operation == other.operation && data_type == other.data_type && layout == other.layout &&
         spatial_rank == other.spatial_rank;
}

Bans Bans::Of(const TuningKey& key) const {
  if (empty()) return {};
  // Whoever asks for all tunings asks for those of one environment in a row.
  thread_local std::string parsed;
  thread_local std::optional<Environment> environment;
  if (parsed != key.environment_text) {
    const absl::StatusOr<Environment> read = Environment::Parse(key.environment_text);
    environment = read.ok() ? std::make_optional(*read) : std::nullopt;
    parsed = key.environment_text;
  }
  if (!environment) return {};
  // The operation is the text's first word, and spares most problems that they are read.
  const std::string_view operation =
      std::string_view(key.problem_text).substr(0, key.problem_text.find(','));
  std::vector<Shared> held;
  std::copy_if(bans_.begin(), bans_.end(), std::back_inserter(held), [&](const Shared& ban) {
    return (!ban->operation || Name(*ban->operation) == operation) && HoldsFor(*ban, *environment);
  });
  const auto asks_problem = [](const Shared& ban) {
    return ban->data_type || ban->layout || ban->spatial_rank != 0;
  };
  if (std::none_of(held.begin(), held.end(), asks_problem)) return Bans(std::move(held));
  const absl::StatusOr<ConvProblem> problem = ConvProblem::Parse(key.problem_text);
  std::erase_if(held, [&](const Shared& ban) {
    return asks_problem(ban) && !(problem.ok() && HoldsFor(*ban, *problem));
  });
  return Bans(std::move(held));
}

Bans Bans::With(const std::vector<Ban>& added) const {
  std::vector<Shared> all = bans_;
  for (const Ban& ban : added) all.push_back(std::make_shared<const Ban>(ban));
  return Bans(std::move(all));
}

absl::Status Bans::CheckIsNew(const Ban& ban, size_t most) const {
  for (const Shared& known : bans_) {
    if (known->HasRuleOf(ban)) {
      return absl::AlreadyExistsError(
          Concat("ban: ", known->NameAndReason(), " has the same rule"));
    }
  }
  const int64_t shipped = std::count_if(bans_.begin(), bans_.end(),
                                        [](const Shared& known) { return known->shipped(); });
  if (bans_.size() - shipped < most) return absl::OkStatus();
  return absl::ResourceExhaustedError(Concat("ban: there are ", most, " already"));
}

Bans::Shared Bans::Find(const CandidateId& candidate) const {
  for (const Shared& ban : bans_) {
    if (ban->candidate.Fits(candidate)) return ban;
  }
  return nullptr;
}

std::vector<Ban> ShippedBans() {
  std::vector<Ban> bans;
  for (const Erratum& erratum : kErrata) {
    Ban& ban = bans.emplace_back();
    ban.number = Ban::kShipped + static_cast<int64_t>(bans.size());
    ban.candidate.number = erratum.engine;
    ban.cudnn.start = CudnnVersion::FromNumber(erratum.cudnn_begin);
    if (erratum.cudnn_end != 0) ban.cudnn.end = CudnnVersion::FromNumber(erratum.cudnn_end);
    if (erratum.sm != 0) ban.gpu = Concat("sm-", erratum.sm);
    ban.operation = erratum.operation;
    ban.spatial_rank = erratum.spatial_rank;
    ban.author = "convtune";
    ban.reason = erratum.reason;
    ban.create_time = absl::FromCivil(kErrataRead, absl::UTCTimeZone());
  }
  return bans;
}

}  // namespace convtune
