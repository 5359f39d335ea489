#include "tests/fakes/fake_script.h"

#include <fstream>
#include <functional>
#include <map>
#include <sstream>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace convtune {

absl::StatusOr<FakeScript> FakeScript::Parse(std::string_view text) {
  FakeScript script;
  const std::map<std::string, std::string*> texts = {{"environment", &script.environment},
                                                     {"version", &script.version},
                                                     {"fault", &script.fault},
                                                     {"where", &script.where},
                                                     {"instrument", &script.instrument},
                                                     {"problem", &script.problem},
                                                     {"disagree", &script.disagree},
                                                     {"once", &script.once},
                                                     {"log", &script.log},
                                                     {"recording", &script.recording},
                                                     {"driver", &script.driver},
                                                     {"card", &script.card},
                                                     {"unblocked", &script.unblocked},
                                                     {"nvrtc", &script.nvrtc}};
  int seed = 1;
  const std::map<std::string, int*> numbers = {{"candidates", &script.candidates},
                                               {"seed", &seed},
                                               {"legacy", &script.legacy},
                                               {"legacy_slower_us", &script.legacy_slower_us},
                                               {"unsupported", &script.unsupported},
                                               {"refused", &script.refused},
                                               {"uses_nvrtc", &script.uses_nvrtc},
                                               {"prepare_delay_ms", &script.prepare_delay_ms},
                                               {"measure_delay_ms", &script.measure_delay_ms},
                                               {"start_delay_ms", &script.start_delay_ms},
                                               {"listing_delay_ms", &script.listing_delay_ms},
                                               {"host_us", &script.host_us},
                                               {"slow_host", &script.slow_host},
                                               {"other_processes", &script.other_processes},
                                               {"retried_runs", &script.retried_runs},
                                               {"busy_looks", &script.busy_looks},
                                               {"clock_reasons", &script.clock_reasons},
                                               {"wrong", &script.wrong},
                                               {"wrong_from", &script.wrong_from},
                                               {"checker_version", &script.checker_version},
                                               {"nonfinite", &script.nonfinite},
                                               {"overwrites", &script.overwrites},
                                               {"check_delay_ms", &script.check_delay_ms},
                                               {"unblocked_from", &script.unblocked_from},
                                               {"unblocked_index", &script.unblocked_index},
                                               {"hopeless", &script.hopeless},
                                               {"find_left_out", &script.find_left_out},
                                               {"split_modes", &script.split_modes},
                                               {"start_work_ms", &script.start_work_ms},
                                               {"slow_ms", &script.slow_ms},
                                               {"heedless", &script.heedless},
                                               {"index", &script.index}};
  const std::string copy(text);
  for (const std::string& line : std::vector<std::string>(
           absl::StrSplit(copy, absl::ByAnyChar("\n;"), absl::SkipWhitespace()))) {
    if (line[0] == '#') continue;
    const std::pair<std::string, std::string> pair = absl::StrSplit(line, absl::MaxSplits('=', 1));
    if (pair.first == "self_check") {
      if (!absl::SimpleAtoi(pair.second, &script.self_check)) {
        return absl::InvalidArgumentError("self_check: must be a number");
      }
    } else if (const auto found = texts.find(pair.first); found != texts.end()) {
      *found->second = pair.second;
    } else if (const auto number = numbers.find(pair.first); number == numbers.end()) {
      return absl::InvalidArgumentError(absl::StrCat(pair.first, ": is no key of a script"));
    } else if (!absl::SimpleAtoi(pair.second, number->second)) {
      return absl::InvalidArgumentError(absl::StrCat(pair.first, ": must be a number"));
    }
  }
  script.seed = static_cast<uint64_t>(seed);
  return script;
}

absl::StatusOr<FakeScript> FakeScript::Load(const std::string& text_or_path) {
  if (text_or_path.empty()) return FakeScript();
  if (text_or_path.find('=') != std::string::npos) return Parse(text_or_path);
  std::ifstream file(text_or_path);
  if (!file) return absl::NotFoundError(absl::StrCat("script: cannot read ", text_or_path));
  std::stringstream content;
  content << file.rdbuf();
  return Parse(content.str());
}

}  // namespace convtune
