// A session of the worker on a backend of the tests.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "proto/convtune/worker/protocol_version.h"
#include "server/worker/session.h"
#include "tests/unit/worker/fake_backend.h"

namespace convtune {

class SessionTest : public testing::Test {
 protected:
  SessionTest() : session_(&backend_) {}

  std::vector<worker::Reply> Ask(const worker::Request& request) {
    std::vector<worker::Reply> replies;
    status_ = session_.Handle(request, [&replies](const worker::Reply& reply) {
      replies.push_back(reply);
      return absl::OkStatus();
    });
    for (size_t i = 0; i < replies.size(); ++i) {
      EXPECT_EQ(replies[i].last(), i + 1 == replies.size());
    }
    return replies;
  }

  std::vector<worker::Reply> Hello(int major = kWorkerProtocolMajor) {
    worker::Request request;
    request.mutable_hello()->set_protocol_major(major);
    return Ask(request);
  }

  std::vector<worker::Reply> Open(worker::OpenProblem open = DefaultOpen()) {
    worker::Request request;
    *request.mutable_open_problem() = std::move(open);
    return Ask(request);
  }

  static worker::OpenProblem DefaultOpen() {
    worker::OpenProblem open;
    open.set_problem_text("fwd,x=1x8x16x16,w=8x8x3x3,pad=1,nhwc,f16");
    open.set_listing(worker::LISTING_HEURISTICS);
    open.set_graph_api(true);
    return open;
  }

  std::vector<worker::Reply> Prepare(std::vector<int> indexes, int stop_after = 0) {
    worker::Request request;
    for (const int index : indexes) {
      request.mutable_prepare()->add_indexes(index);
    }
    request.mutable_prepare()->set_stop_after(stop_after);
    return Ask(request);
  }

  std::vector<worker::Reply> Measure(std::vector<int> indexes) {
    worker::Request request;
    for (const int index : indexes) {
      request.mutable_measure()->add_indexes(index);
    }
    request.mutable_measure()->set_rounds(1);
    return Ask(request);
  }

  std::vector<worker::Reply> Check(std::vector<int> indexes, int64_t budget_ms = 0) {
    worker::Request request;
    for (const int index : indexes) {
      request.mutable_check()->add_indexes(index);
    }
    request.mutable_check()->set_time_budget_ms(budget_ms);
    return Ask(request);
  }

  FakeBackend backend_;
  Session session_;
  absl::Status status_;
};

}  // namespace convtune
