// Converters from the model to messages; one place for all of them. The other
// direction is in request_validator.h. Pure functions.
#pragma once

#include <algorithm>
#include <string>
#include <type_traits>
#include <vector>

#include "absl/status/status.h"
#include "convtune/v1/maintenance_service.pb.h"
#include "convtune/v1/release_service.pb.h"
#include "convtune/v1/tuning.pb.h"
#include "convtune/v1/tuning_service.pb.h"
#include "db/store/backups.h"
#include "db/tuning_store.h"
#include "proto/base/status_macros.h"
#include "proto/convert/record_codec.h"
#include "proto/model/tuning/tuning.h"
#include "server/lookup/tuning_index.h"
#include "server/release/publisher.h"
#include "server/rpc/messages/page.h"
#include "server/rpc/messages/request_validator.h"

namespace convtune::rpc::messages {

using convtune::ToProto;

// The one of `known` with that key text; what the text says if there is none.
v1::Environment FindEnvironment(const std::vector<v1::Environment>& known, const std::string& text);

v1::Quarantine ToProto(const QuarantineEntry& entry);
// With all candidates and samples.
v1::Tuning ToProto(const Tuning& tuning, const v1::Environment& environment);
// Without candidates.
v1::Tuning ToProto(const lookup::IndexedTuning& indexed, const v1::Environment& environment);
v1::PinRecord ToProto(const Pin& pin);
// Adds the usable candidates that `bans`, those of the tuning's key, ban, and sets the winner that
// is left.
void AddBanned(const Tuning& tuning, const Bans& bans, v1::Tuning* out);

v1::ChoiceChange ToProto(const release::ChoiceChange& change);

// Puts the page that `request` asks for into `out`, a field of `reply`, and the next page's token
// into the reply. `rows` are the whole list, as messages or as what ToProto takes; `key` gives a
// text that tells a row from all others. INVALID_ARGUMENT: the page token is not one that the page
// before gave.
template <typename Request, typename Row, typename Key, typename Message, typename Reply>
absl::Status AddPage(const Request& request, const std::vector<Row>& rows, const Key& key,
                     google::protobuf::RepeatedPtrField<Message>* out, Reply* reply) {
  ASSIGN_OR_RETURN(const size_t first, FirstOfPage(request.page_token(), rows.size(),
                                                   [&](size_t i) { return key(rows[i]); }));
  size_t count = rows.size() - first;
  if constexpr (requires { request.max_problems(); }) {
    count = std::min(count, RowsOf(request.max_problems()));
  } else if constexpr (requires { request.max_changes(); }) {
    count = std::min(count, RowsOf(request.max_changes()));
  } else if (request.page_size() > 0) {
    count = std::min(count, static_cast<size_t>(request.page_size()));
  }
  const auto make = [&](size_t i) -> Message {
    if constexpr (std::is_same_v<Row, Message>) {
      return rows[first + i];
    } else {
      return ToProto(rows[first + i]);
    }
  };
  const size_t end = first + AddRows(count, make, out);
  if (end < rows.size()) {
    reply->set_next_page_token(PageToken({std::to_string(end), key(rows[end - 1])}));
  }
  return absl::OkStatus();
}

// A text for AddPage of a row that has the key.
inline std::string KeyText(const TuningKey& key) {
  return key.environment_text + " " + key.problem_text;
}

}  // namespace convtune::rpc::messages
