// BatchGet's messages on the wire, without a message object for every problem.
// See https://protobuf.dev/programming-guides/encoding/.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/time/time.h"
#include "server/rpc/ready_rows.h"

namespace convtune {

// A BatchGetRequest, taken apart.
struct BatchRequestParts {
  std::string rest;                        // all fields but `problems`, as they came
  std::vector<std::string_view> problems;  // a ProblemSpec each; they point into the request
};

// Nullopt where the bytes are no such message, or take a full parser to tell.
// Nothing is said of what the fields hold.
std::optional<BatchRequestParts> TakeApart(std::string_view request);

// A row of the reply: `ready`, with its age, or else `whole`.
struct ReplyRow {
  std::shared_ptr<const ReadyRow> ready;
  std::string whole;  // a BatchGetResult
};

// A BatchGetResponse to be written. `rows` outlives it.
class BatchReply {
 public:
  // `environment`: a v1::Environment. Ages are those at `now`.
  BatchReply(const std::vector<ReplyRow>* rows, std::string_view environment, absl::Time now);

  size_t size() const { return size_; }
  // Writes size() bytes.
  void WriteTo(uint8_t* out) const;

 private:
  const std::vector<ReplyRow>& rows_;
  const std::string_view environment_;
  const absl::Time now_;
  size_t size_ = 0;
};

}  // namespace convtune
