#include "server/rpc/batch_wire.h"

#include <algorithm>
#include <cstring>

#include "convtune/v1/tuning_service.pb.h"
#include "google/protobuf/duration.pb.h"

namespace convtune {
namespace {

enum WireType : uint32_t { kVarint = 0, kFixed64 = 1, kLengthDelimited = 2, kFixed32 = 5 };
constexpr int kWireTypeBits = 3;
constexpr uint8_t kMore = 0x80;
constexpr uint64_t kLowBits = 0x7F;
constexpr int kBitsPerByte = 7;

constexpr uint8_t Tag(int field, WireType type) {
  return static_cast<uint8_t>((static_cast<uint32_t>(field) << kWireTypeBits) | type);
}

using v1::BatchGetRequest;
using v1::BatchGetResponse;
using v1::BatchGetResult;
constexpr uint8_t kProblemsTag = Tag(BatchGetRequest::kProblemsFieldNumber, kLengthDelimited);
constexpr uint8_t kResultsTag = Tag(BatchGetResponse::kResultsFieldNumber, kLengthDelimited);
constexpr uint8_t kEnvironmentTag =
    Tag(BatchGetResponse::kEnvironmentFieldNumber, kLengthDelimited);
constexpr uint8_t kAnswerTag = Tag(BatchGetResult::kAnswerFieldNumber, kLengthDelimited);
constexpr uint8_t kAgeTag = Tag(v1::Answer::kAgeFieldNumber, kLengthDelimited);
constexpr uint8_t kSecondsTag = Tag(google::protobuf::Duration::kSecondsFieldNumber, kVarint);
constexpr uint8_t kNanosTag = Tag(google::protobuf::Duration::kNanosFieldNumber, kVarint);
constexpr int64_t kMaxDurationSeconds = 315576000000;

// Returns what follows the varint, nullptr if it is cut short or too long.
const uint8_t* ReadVarint(const uint8_t* at, const uint8_t* end, uint64_t* value) {
  constexpr int kMostBits = 64;
  *value = 0;
  for (int shift = 0; shift < kMostBits && at != end; shift += kBitsPerByte) {
    const uint8_t byte = *at++;
    *value |= (byte & kLowBits) << shift;
    if ((byte & kMore) == 0) return at;
  }
  return nullptr;
}

size_t VarintSize(uint64_t value) {
  size_t size = 1;
  for (; value > kLowBits; value >>= kBitsPerByte) ++size;
  return size;
}

uint8_t* WriteVarint(uint64_t value, uint8_t* out) {
  for (; value > kLowBits; value >>= kBitsPerByte) {
    *out++ = static_cast<uint8_t>((value & kLowBits) | kMore);
  }
  *out++ = static_cast<uint8_t>(value);
  return out;
}

uint8_t* WriteBytes(std::string_view bytes, uint8_t* out) {
  std::memcpy(out, bytes.data(), bytes.size());
  return out + bytes.size();
}

size_t FieldSize(size_t payload) { return 1 + VarintSize(payload) + payload; }

// An answer's age at a time, as a Duration.
struct Age {
  Age(absl::Time since, absl::Time now) {
    absl::Duration rest =
        std::clamp(now - since, absl::ZeroDuration(), absl::Seconds(kMaxDurationSeconds));
    seconds = static_cast<uint64_t>(absl::IDivDuration(rest, absl::Seconds(1), &rest));
    nanos = static_cast<uint64_t>(absl::ToInt64Nanoseconds(rest));
    size = (seconds == 0 ? 0 : 1 + VarintSize(seconds)) + (nanos == 0 ? 0 : 1 + VarintSize(nanos));
  }

  uint64_t seconds;
  uint64_t nanos;
  size_t size;
};

size_t AnswerSize(const ReadyRow& row, const Age& age) {
  return row.bytes.size() - row.head_size + FieldSize(age.size);
}

size_t RowSize(const ReplyRow& row, absl::Time now) {
  if (row.ready == nullptr) return row.whole.size();
  const Age age(row.ready->source.tune_time, now);
  return row.ready->head_size + FieldSize(AnswerSize(*row.ready, age));
}

uint8_t* WriteReady(const ReadyRow& row, absl::Time now, uint8_t* out) {
  const Age age(row.source.tune_time, now);
  const size_t answer_size = AnswerSize(row, age);
  *out++ = kResultsTag;
  out = WriteVarint(row.head_size + FieldSize(answer_size), out);
  const std::string_view bytes = row.bytes;
  out = WriteBytes(bytes.substr(0, row.head_size), out);
  *out++ = kAnswerTag;
  out = WriteVarint(answer_size, out);
  out = WriteBytes(bytes.substr(row.head_size), out);
  *out++ = kAgeTag;
  out = WriteVarint(age.size, out);
  if (age.seconds != 0) {
    *out++ = kSecondsTag;
    out = WriteVarint(age.seconds, out);
  }
  if (age.nanos != 0) {
    *out++ = kNanosTag;
    out = WriteVarint(age.nanos, out);
  }
  return out;
}

}  // namespace

std::optional<BatchRequestParts> TakeApart(std::string_view request) {
  constexpr ptrdiff_t kLeastProblem = 24;
  BatchRequestParts parts;
  const auto* at = reinterpret_cast<const uint8_t*>(request.data());
  const uint8_t* const end = at + request.size();
  parts.problems.reserve(static_cast<size_t>((end - at) / kLeastProblem + 1));
  while (at != end) {
    const uint8_t* const field = at;
    uint64_t tag = 0;
    uint64_t value = 0;
    at = ReadVarint(at, end, &tag);
    if (at == nullptr) return std::nullopt;
    size_t skip = 0;
    switch (tag & ((1U << kWireTypeBits) - 1)) {
      case kVarint:
        at = ReadVarint(at, end, &value);
        break;
      case kLengthDelimited:
        at = ReadVarint(at, end, &value);
        skip = value;
        break;
      case kFixed64:
        skip = sizeof(uint64_t);
        break;
      case kFixed32:
        skip = sizeof(uint32_t);
        break;
      default:
        return std::nullopt;
    }
    if (at == nullptr || skip > static_cast<size_t>(end - at)) return std::nullopt;
    if (tag == kProblemsTag) {
      parts.problems.emplace_back(reinterpret_cast<const char*>(at), skip);
    } else {
      parts.rest.append(reinterpret_cast<const char*>(field),
                        static_cast<size_t>(at + skip - field));
    }
    at += skip;
  }
  return parts;
}

BatchReply::BatchReply(const std::vector<ReplyRow>* rows, std::string_view environment,
                       absl::Time now)
    : rows_(*rows), environment_(environment), now_(now), size_(FieldSize(environment.size())) {
  for (const ReplyRow& row : rows_) size_ += FieldSize(RowSize(row, now));
}

void BatchReply::WriteTo(uint8_t* out) const {
  for (const ReplyRow& row : rows_) {
    if (row.ready != nullptr) {
      out = WriteReady(*row.ready, now_, out);
      continue;
    }
    *out++ = kResultsTag;
    out = WriteVarint(row.whole.size(), out);
    out = WriteBytes(row.whole, out);
  }
  *out++ = kEnvironmentTag;
  out = WriteVarint(environment_.size(), out);
  WriteBytes(environment_, out);
}

}  // namespace convtune
