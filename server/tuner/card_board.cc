#include "server/tuner/card_board.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "server/tuner/xid.h"
#include "spdlog/spdlog.h"

namespace convtune {

void CardBoard::SetListener(Listener listener) {
  MutexLock lock(mutex_);
  listener_ = std::move(listener);
  if (!listener_) return;
  for (const auto& [device, card] : cards_) listener_(device, !card.lost.empty());
}

void CardBoard::Add(const std::string& device) {
  MutexLock lock(mutex_);
  if (cards_.try_emplace(device).second && listener_) listener_(device, false);
}

void CardBoard::Note(const std::string& device, const CardNews& news) {
  MutexLock lock(mutex_);
  const auto found = cards_.find(device);
  if (found == cards_.end()) return;
  Card* card = &found->second;
  switch (news.kind) {
    case CardNews::Kind::kXid:
      NoteXid(device, news.xid, card);
      return;
    case CardNews::Kind::kLost:
      Lose(device, news.reason, card);
      return;
    case CardNews::Kind::kBack:
      if (card->lost.empty()) return;
      spdlog::info("{}: the card is back", device);
      card->lost.clear();
      if (listener_) listener_(device, false);
  }
}

void CardBoard::NoteXid(const std::string& device, int64_t xid, Card* card) {
  // They may come by the thousand.
  const int64_t count = ++card->xids[xid];
  if ((count & (count - 1)) == 0) {
    spdlog::warn("{}: the driver reports {}, {} by now", device, DescribeXid(xid), count);
  }
  const XidKind kind = KindOfXid(xid);
  if (kind == XidKind::kApplication) card->stale = true;
  if (kind == XidKind::kLost) Lose(device, DescribeXid(xid), card);
}

void CardBoard::Lose(const std::string& device, const std::string& reason, Card* card) {
  if (!card->lost.empty()) return;
  spdlog::error("{}: the card is lost: {}", device, reason);
  card->lost = reason;
  if (listener_) listener_(device, true);
  if (card->interrupt) card->interrupt();
}

std::vector<CardStatus> CardBoard::List() const {
  std::vector<CardStatus> statuses;
  MutexLock lock(mutex_);
  for (const auto& [device, card] : cards_) statuses.push_back({device, card.lost, card.xids});
  return statuses;
}

absl::Status CardBoard::Check(const std::string& device) const {
  MutexLock lock(mutex_);
  const auto found = cards_.find(device);
  if (found == cards_.end() || found->second.lost.empty()) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat("the card is lost: ", found->second.lost));
}

bool CardBoard::TakeStale(const std::string& device) {
  MutexLock lock(mutex_);
  const auto found = cards_.find(device);
  return found != cards_.end() && std::exchange(found->second.stale, false);
}

void CardBoard::SetInterrupt(const std::string& device, std::function<void()> interrupt) {
  MutexLock lock(mutex_);
  const auto found = cards_.find(device);
  if (found != cards_.end()) found->second.interrupt = std::move(interrupt);
}

}  // namespace convtune
