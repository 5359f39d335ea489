// A stream whose GPU a test plays.
#pragma once

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/worker/timing/timer.h"

namespace convtune::worker::timing {

class FakeTimedStream : public TimedStream {
 public:
  absl::Status Block(absl::Duration limit) override {
    calls.push_back("block");
    limits.push_back(limit);
    blocked = true;
    return absl::OkStatus();
  }
  void Release() override {
    calls.push_back("release");
    blocked = false;
  }
  absl::Status Synchronize() override {
    calls.push_back("wait");
    waited_while_blocked |= blocked;
    return blocked ? absl::InternalError("it would wait for ever") : wait_status;
  }
  bool GaveUp() const override {
    return !give_ups.empty() && limits.size() <= give_ups.size() && give_ups[limits.size() - 1];
  }
  absl::Status PutStamp(int place) override { return Note(absl::StrCat("stamp ", place)); }
  Stamp ReadStamp(int place) const override { return stamps[place]; }
  absl::Status Flush(int64_t read_next) override { return Note(absl::StrCat("flush ", read_next)); }
  absl::Status Read(const void* /*data*/, int64_t bytes) override {
    return Note(absl::StrCat("read ", bytes));
  }
  absl::Status Record(int event) override { return Note(absl::StrCat("event ", event)); }
  absl::StatusOr<double> ElapsedUs(int first, int /*second*/) override {
    return elapsed_us + first;
  }

  absl::Status Note(std::string call) {
    calls.push_back(std::move(call));
    return absl::OkStatus();
  }

  std::vector<std::string> calls;
  std::vector<absl::Duration> limits;  // of the blocking kernels
  std::vector<bool> give_ups;          // of the blocking kernels
  bool blocked = false;
  bool waited_while_blocked = false;
  absl::Status wait_status;
  Stamp stamps[kStamps] = {{1'000'000, 1000}, {1'100'000, 1000 + 150'000}};
  double elapsed_us = 100;
};

}  // namespace convtune::worker::timing
