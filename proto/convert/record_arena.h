// A RecordArena holds one record after the other. It keeps 64 KiB, and the rest of a larger
// record until the next one.
#pragma once

#include <memory>
#include <string_view>

#include "convtune/v1/record.pb.h"
#include "google/protobuf/arena.h"

namespace convtune {

// Not thread-safe.
class RecordArena {
 public:
  // The calling thread's own.
  static RecordArena& OfThread() {
    thread_local RecordArena arena;
    return arena;
  }

  // An empty record. It is there until the next call of New or Parse.
  v1::Tuning* New() {
    arena_.Reset();
    return google::protobuf::Arena::CreateMessage<v1::Tuning>(&arena_);
  }

  // The record that has these bytes, for as long; nullptr: the bytes are no record.
  v1::Tuning* Parse(std::string_view bytes) {
    v1::Tuning* const record = New();
    return record->ParseFromArray(bytes.data(), static_cast<int>(bytes.size())) ? record : nullptr;
  }

 private:
  static constexpr size_t kBlock = 64 << 10;

  google::protobuf::ArenaOptions Options() {
    google::protobuf::ArenaOptions options;
    options.initial_block = block_.get();
    options.initial_block_size = kBlock;
    return options;
  }

  const std::unique_ptr<char[]> block_ = std::make_unique<char[]>(kBlock);
  google::protobuf::Arena arena_{Options()};
};

}  // namespace convtune
