#include "server/worker/search/listing_sink.h"

#include "absl/strings/str_cat.h"
#include "proto/base/clock.h"
#include "proto/convert/record_codec.h"

namespace convtune::worker::search {

bool ListingSink::Offer(const Candidate& candidate) {
  if (stopped_) {
    return false;
  }
  if (seen_.contains(candidate.id)) {
    return true;
  }
  if (max_candidates_ > 0 && count() >= max_candidates_) {
    MarkTruncated();
    stopped_ = true;
    return false;
  }
  seen_.insert(candidate.id);
  if (!on_listed_(candidate)) {
    stopped_ = true;
  }
  return !stopped_;
}

bool ListingSink::Late(int about_to_be) const {
  // With nothing listed there is nothing to try: cuDNN, which loads its
  // libraries at its first call, may have taken all of the time for that.
  return count() + about_to_be > 0 && SteadyTime::Now() >= deadline_;
}

bool ListingSink::Over() {
  if (!stopped_ && Late()) MarkOutOfTime();
  return stopped_;
}

void ListingSink::AddRefusal(const absl::Status& status) {
  absl::StrAppend(outcome_.mutable_message(), outcome_.message().empty() ? "" : "; ",
                  Utf8(std::string(status.message())));
}

}  // namespace convtune::worker::search
