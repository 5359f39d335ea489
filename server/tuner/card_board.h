// What is known of the cards beneath the devices: which are lost, and what
// errors the driver reported of them.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/base/mutex.h"
#include "server/tuner/tuner.h"

namespace convtune {

// What whoever watches a card has to say of it.
struct CardNews {
  enum class Kind {
    kXid,   // the driver reported an error; see KindOfXid
    kLost,  // the card cannot be used
    kBack   // it can be tried again
  };
  Kind kind = Kind::kXid;
  int64_t xid = 0;          // of kXid
  std::string reason = "";  // of kLost
};

struct CardStatus {
  std::string device;
  std::string lost;                 // why; empty: it is not
  std::map<int64_t, int64_t> xids;  // how often each was reported
};

// Between those who watch the cards and the devices. Thread-safe.
class CardBoard {
 public:
  // Is told whether a device's card is lost: of all at once, then of every
  // change. With a lock held: must return at once and call nothing of the board.
  using Listener = std::function<void(const std::string& device, bool lost)>;
  void SetListener(Listener listener);

  void Add(const std::string& device);
  // News of a device that was not added are ignored.
  void Note(const std::string& device, const CardNews& news);
  std::vector<CardStatus> List() const;

  // The device's side. A device that was not added is never lost.
  //
  // UNAVAILABLE with the reason while the card is lost.
  absl::Status Check(const std::string& device) const;
  // True once after an application's Xid: whatever context there is may be gone.
  bool TakeStale(const std::string& device);
  // Called when the card is lost, as a Listener; empty: no more.
  void SetInterrupt(const std::string& device, std::function<void()> interrupt);

 private:
  struct Card {
    std::string lost;
    bool stale = false;
    std::map<int64_t, int64_t> xids;
    std::function<void()> interrupt;
  };

  void NoteXid(const std::string& device, int64_t xid, Card* card) REQUIRES(mutex_);
  void Lose(const std::string& device, const std::string& reason, Card* card) REQUIRES(mutex_);

  mutable Mutex mutex_;
  Listener listener_ GUARDED_BY(mutex_);
  std::map<std::string, Card> cards_ GUARDED_BY(mutex_);
};

// As Tuner::Create, with devices that heed what `cards` knows: one whose card is
// lost gets no work, and its worker is ended; one that an application's Xid was
// reported of gets a new worker for its next work. `cards` outlives the tuner.
absl::StatusOr<std::unique_ptr<Tuner>> CreateTuner(Tuner::Options options, CardBoard* cards);

}  // namespace convtune
