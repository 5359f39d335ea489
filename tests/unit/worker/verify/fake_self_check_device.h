// A GPU, and its stream, that a test plays for a self-check: sound unless it is
// told what is broken.
#pragma once

#include <array>
#include <chrono>
#include <functional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "server/worker/verify/self_check.h"

namespace convtune::worker::verify {

class FakeSelfCheckDevice : public timing::TimedStream {
 public:
  // Call it anew after sizes and rates are changed.
  SelfCheckDevice Device() {
    SelfCheckDevice device;
    device.stream = this;
    device.memory = [this] { return timing::MemorySpan{nullptr, CacheBytes(flush_size / 2)}; };
    device.flush_bytes = flush_size;
    device.memory_bytes_per_second = memory_rate;
    device.look = [this](PlantedFault fault) {
      worker::v1::Checked look;
      if (blind_to.contains(fault)) return look;
      if (fault == PlantedFault::kByteBehind) look.set_out_of_bounds("1 bytes behind its end");
      look.set_nonfinite(fault == PlantedFault::kNan ? 1 : 0);
      look.set_error(fault == PlantedFault::kWrongElement ? 0.5 : unfounded_error);
      return look;
    };
    device.run_after_spoilt_capture = [this] {
      capture_was_spoilt = true;
      return after_capture;
    };
    return device;
  }

  // TimedStream: what is put on the stream is done when it is waited for.
  absl::Status Block(absl::Duration limit) override {
    released_ = false;
    gave_up_ = false;
    blocked_at_ = std::chrono::steady_clock::now();
    ops_.emplace_back([this, limit] {
      gave_up_ = !released_ || blocking_gives_up;
      time_us_ += gave_up_ ? absl::ToDoubleMicroseconds(limit) : 100;
      if (work_us_ < idle_until_us) time_us_ += absl::ToDoubleMicroseconds(limit) / 20;
      const std::chrono::duration<double, std::micro> waited = released_at_ - blocked_at_;
      late_us_ = wait_is_counted && released_ ? waited.count() : 0;
    });
    return absl::OkStatus();
  }
  void Release() override {
    released_ = true;
    released_at_ = std::chrono::steady_clock::now();
  }
  absl::Status Synchronize() override {
    for (const auto& op : ops_) op();
    ops_.clear();
    return wait_status;
  }
  bool GaveUp() const override { return gave_up_; }
  absl::Status PutStamp(int place) override {
    ops_.emplace_back([this, place] {
      const std::chrono::duration<double, std::micro> host =
          std::chrono::steady_clock::now().time_since_epoch();
      const double us = host.count() + work_us_;
      stamps_[static_cast<size_t>(place)] = {static_cast<uint64_t>(us * timer_rate * 1000),
                                             static_cast<uint64_t>(us * sm_clock_mhz)};
    });
    return absl::OkStatus();
  }
  Stamp ReadStamp(int place) const override { return stamps_[static_cast<size_t>(place)]; }
  absl::Status Flush(int64_t /*read_next*/) override {
    ops_.emplace_back([this] {
      Work(flush_us);
      cached_ = false;
    });
    return absl::OkStatus();
  }
  absl::Status Read(const void* /*data*/, int64_t /*bytes*/) override {
    ops_.emplace_back([this] {
      Work(cached_ ? hot_us : cold_us);
      cached_ = true;
    });
    return read_status;
  }
  absl::Status Record(int event) override {
    ops_.emplace_back([this, event] { events_[static_cast<size_t>(event)] = time_us_; });
    return absl::OkStatus();
  }
  absl::StatusOr<double> ElapsedUs(int first, int second) override {
    return (events_[static_cast<size_t>(second)] - events_[static_cast<size_t>(first)] +
            launch_us) *
           event_rate;
  }

  static worker::v1::Checked Exact() {
    worker::v1::Checked run;
    run.set_error(0);
    return run;
  }

  bool blocking_gives_up = false;  // also those that are released
  bool wait_is_counted = false;    // in the time of what waits
  double event_rate = 1;
  double launch_us = 3;  // that events count with whatever lies between them
  double timer_rate = 1;
  double sm_clock_mhz = 1755;
  double idle_until_us = 0;  // work that brings the clocks up; before, delays are 5% longer
  double hot_us = 4;
  double cold_us = 8;
  double flush_us = 40;
  int64_t flush_size = 100'000'000;
  double memory_rate = 3.35e12;  // bytes in a second
  std::set<PlantedFault> blind_to;
  double unfounded_error = 0;
  absl::StatusOr<worker::v1::Checked> after_capture = Exact();
  bool capture_was_spoilt = false;
  absl::Status read_status;
  absl::Status wait_status;

 private:
  void Work(double us) {
    time_us_ += us + std::exchange(late_us_, 0);
    work_us_ += us;
  }

  std::vector<std::function<void()>> ops_;
  double time_us_ = 0;  // of the stream
  double work_us_ = 0;  // that the GPU was at work
  double late_us_ = 0;  // what the next work counts with
  bool released_ = false;
  std::chrono::steady_clock::time_point blocked_at_;
  std::chrono::steady_clock::time_point released_at_;
  bool gave_up_ = false;
  bool cached_ = false;
  std::array<double, kEvents> events_ = {};
  std::array<Stamp, kStamps> stamps_ = {};
};

}  // namespace convtune::worker::verify
