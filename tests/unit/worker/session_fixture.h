// A session of the worker on a backend of the tests.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "server/worker/session.h"
#include "tests/unit/worker/fake_backend.h"

namespace convtune::worker {

class SessionTest : public testing::Test {
 protected:
  SessionTest() : session_(&backend_) {}

  std::vector<worker::v1::Reply> Ask(const worker::v1::Request& request) {
    std::vector<worker::v1::Reply> replies;
    status_ = session_.Handle(request, [&replies](const worker::v1::Reply& reply) {
      replies.push_back(reply);
      return absl::OkStatus();
    });
    for (size_t i = 0; i < replies.size(); ++i) {
      EXPECT_EQ(replies[i].last(), i + 1 == replies.size());
    }
    return replies;
  }

  std::vector<worker::v1::Reply> Hello(const std::string& version = CONVTUNE_VERSION) {
    worker::v1::Request request;
    request.mutable_hello()->set_version(version);
    return Ask(request);
  }

  std::vector<worker::v1::Reply> Open(worker::v1::OpenProblem open = DefaultOpen()) {
    worker::v1::Request request;
    *request.mutable_open_problem() = std::move(open);
    return Ask(request);
  }

  static worker::v1::OpenProblem DefaultOpen() {
    worker::v1::OpenProblem open;
    open.set_problem_text("fwd,x=1x8x16x16,w=8x8x3x3,pad=1,nhwc,f16");
    open.set_listing(worker::v1::LISTING_HEURISTICS);
    open.set_graph_api(true);
    return open;
  }

  static worker::v1::Request Of(const std::vector<int>& indexes) {
    worker::v1::Request request;
    request.mutable_indexes()->Add(indexes.begin(), indexes.end());
    return request;
  }

  std::vector<worker::v1::Reply> Prepare(const std::vector<int>& indexes, int stop_after = 0) {
    worker::v1::Request request = Of(indexes);
    request.mutable_prepare()->set_stop_after(stop_after);
    return Ask(request);
  }

  std::vector<worker::v1::Reply> Measure(const std::vector<int>& indexes, int rounds = 1) {
    worker::v1::Request request = Of(indexes);
    request.mutable_measure()->set_rounds(rounds);
    return Ask(request);
  }

  std::vector<worker::v1::Reply> Check(const std::vector<int>& indexes) {
    worker::v1::Request request = Of(indexes);
    request.mutable_check();
    return Ask(request);
  }

  // A handshake, a problem, and the plans of all its candidates.
  void Ready() {
    Hello();
    Open();
    for (int i = 0; i < static_cast<int>(backend_.candidates.size()); ++i) Prepare({i});
  }

  FakeBackend backend_;
  Session session_;
  absl::Status status_;
};

}  // namespace convtune::worker
