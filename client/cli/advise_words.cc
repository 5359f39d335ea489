#include "client/cli/advise_words.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "client/cli/answer_output.h"

namespace convtune {
namespace {

v1::Evidence EvidenceOf(const AdviceRow& row) { return row.result.answer().evidence(); }

bool IsMeasured(const AdviceRow& row) { return EvidenceOf(row) >= v1::EVIDENCE_MEASURED; }

// Bits of the exponent and of the significand (with the implied one) that an
// input keeps.
std::pair<int, int> BitsOf(const Variant& variant) {
  switch (variant.problem.data_type()) {
    case DataType::kF64:
      return {11, 53};
    case DataType::kF32:
      return {8, variant.forbid_tf32 ? 24 : 11};
    case DataType::kF16:
      return {5, 11};
    case DataType::kBF16:
      return {8, 8};
    case DataType::kI8:
      return {0, 7};
    case DataType::kI32:
      return {0, 31};
    case DataType::kE4M3:
      return {4, 4};
    case DataType::kE5M2:
      return {5, 3};
  }
  return {0, 0};
}

bool IsNarrower(const Variant& variant, const Variant& asked) {
  const auto [exponent, significand] = BitsOf(variant);
  const auto [asked_exponent, asked_significand] = BitsOf(asked);
  return exponent < asked_exponent || significand < asked_significand;
}

std::string ErrorWord(const AdviceRow& row) {
  const v1::Candidate& winner = row.result.answer().winner();
  return winner.has_error() ? absl::StrFormat("%.1e", winner.error()) : "not known";
}

// The fastest, of those that are measured or of all.
const AdviceRow* Fastest(const std::vector<AdviceRow>& rows, bool measured) {
  const AdviceRow* best = nullptr;
  for (const AdviceRow& row : rows) {
    if (!(row.advice.speed_up > 0) || (measured && !IsMeasured(row))) continue;
    if (best == nullptr || row.advice.speed_up > best->advice.speed_up) best = &row;
  }
  return best;
}

std::string NameOf(const Variant& variant) {
  const std::string math = MathWord(variant);
  return absl::StrCat("batch ", variant.batch, ", ", std::string(Name(variant.problem.layout())),
                      ", ", std::string(Name(variant.problem.data_type())),
                      math.empty() ? "" : " (" + math + ")");
}

}  // namespace

std::string MathWord(const Variant& variant) {
  if (variant.problem.data_type() != DataType::kF32) return "";
  return variant.forbid_tf32 ? "no tf32" : "tf32";
}

std::string CeilingWords(const Ceilings& ceilings) {
  std::string words = "BOUND: the nearest to the card's ceilings, measured by probes";
  std::vector<std::string> not_probed;
  if (ceilings.gbytes.probed) {
    absl::StrAppendFormat(&words, "; memory %.0f GB/s", ceilings.gbytes.value);
  } else {
    not_probed.push_back("memory");
  }
  for (const auto& [type, most] : ceilings.tflops) {
    const std::string name =
        absl::StrCat(std::string(Name(type.first)), type.second ? " without tf32" : "");
    if (most.probed) {
      absl::StrAppendFormat(&words, "; %s %.1f TFLOP/s", name, most.value);
    } else if (most.count > 0) {
      not_probed.push_back(name);
    }
  }
  if (!not_probed.empty()) {
    absl::StrAppend(&words, ". Not probed: ", absl::StrJoin(not_probed, ", "),
                    "; there it is the best seen, and ", BoundWord({}), " with fewer than ",
                    kFewestOthers, " others");
  }
  return words + ".";
}

std::string Conclude(const std::vector<AdviceRow>& rows) {
  const AdviceRow* const fastest = Fastest(rows, false);
  if (fastest == nullptr) {
    return "Nothing was timed, so nothing is said of speed: that needs a GPU.";
  }
  const AdviceRow* asked = fastest;
  for (const AdviceRow& row : rows) {
    if (row.variant.asked) asked = &row;
  }
  const AdviceRow* const measured = Fastest(rows, true);
  const AdviceRow* const best = measured != nullptr ? measured : fastest;
  std::string words;
  if (best->variant.asked) {
    words = "As it was asked for, it is the fastest of these.";
  } else {
    words = absl::StrFormat("The most per image: %s, %.2f times as fast as asked for.",
                            NameOf(best->variant), best->advice.speed_up);
    if (IsNarrower(best->variant, asked->variant)) {
      absl::StrAppend(&words, " Its type is narrower: the numerical error is ", ErrorWord(*best),
                      ", as asked for ", ErrorWord(*asked), ".");
    }
  }
  if (!IsMeasured(*best)) {
    absl::StrAppend(&words, " No recommendation: its evidence is ", EvidenceWord(EvidenceOf(*best)),
                    " only.");
  } else if (!IsMeasured(*asked)) {
    absl::StrAppend(&words, " How much faster is not certain: what was asked for has ",
                    EvidenceWord(EvidenceOf(*asked)), " evidence only.");
  }
  if (fastest != best) {
    absl::StrAppend(&words, " Faster, but with ", EvidenceWord(EvidenceOf(*fastest)),
                    " evidence only: ", NameOf(fastest->variant), ".");
  }
  return words;
}

}  // namespace convtune
