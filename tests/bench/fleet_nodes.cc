// The daemons of many nodes in one process, as far as an agent asks them: they say that
// nothing is to be done, and after a line on standard input that one tuning of the
// node's own waits for the fleet. For fleet_agents.py.
//
//     convtune-bench-fleet-nodes FOLDER COUNT        sockets FOLDER/0 to FOLDER/COUNT-1
#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server_builder.h>
#include <grpcpp/support/proto_buffer_reader.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "convtune/v1/fleet_service.pb.h"
#include "convtune/v1/maintenance_service.pb.h"
#include "convtune/v1/tuning_service.pb.h"
#include "db/bundle/bundle_codec.h"
#include "tests/unit/db/valid_tunings.h"

namespace convtune::bench {
namespace {

constexpr int64_t kEpoch = 1;

class Node final : public grpc::CallbackGenericService {
 public:
  explicit Node(int number) : number_(number) {}

  void Tune() { waits_ = true; }

  // The reply's bytes. All that is not here has nothing to say: an empty message.
  std::string Reply(const std::string& path) {
    const std::string method = path.substr(path.rfind('/') + 1);
    if (method == "GetFleetState") {
      v1::FleetState state;
      state.set_epoch(kEpoch);
      state.set_last_sequence(waits_ || delivered_ ? 1 : 0);
      state.set_outbox_depth(waits_ ? 1 : 0);
      return state.SerializeAsString();
    }
    if (method == "ReadOutbox") {
      v1::ReadOutboxResponse response;
      if (waits_) {
        Tuning tuning = db::ValidSampleTuning(number_ + 1);
        tuning.provenance.node = std::to_string(number_);
        v1::OutboxRow* const row = response.add_rows();
        row->mutable_id()->set_epoch(kEpoch);
        row->mutable_id()->set_sequence(1);
        *row->mutable_environment() =
            db::bundle::ToBundleEnvironment(1, db::SampleEnvironment(), tuning.provenance);
        *row->mutable_tuning() = db::bundle::ToBundleTuning(tuning, 1, /*with_samples=*/false);
      }
      return response.SerializeAsString();
    }
    if (method == "AckOutbox") {
      waits_ = false;
      delivered_ = true;
    }
    if (method == "ListEnvironments") {
      v1::ListEnvironmentsResponse response;
      v1::Environment* const environment = response.add_environments();
      environment->set_name(db::SampleEnvironment().Name());
      environment->set_text(db::SampleEnvironment().ToText());
      environment->set_gpu_model(db::SampleEnvironment().gpu_model);
      environment->set_current(true);
      return response.SerializeAsString();
    }
    if (method == "ListDevices") {
      v1::ListDevicesResponse response;
      v1::Device* const device = response.add_devices();
      device->set_name("gpu:0");
      device->set_environment(db::SampleEnvironment().Name());
      device->set_state(v1::DEVICE_STATE_IDLE);
      return response.SerializeAsString();
    }
    return "";
  }

  grpc::ServerGenericBidiReactor* CreateReactor(
      grpc::GenericCallbackServerContext* context) override {
    class Call final : public grpc::ServerGenericBidiReactor {
     public:
      Call(Node* node, std::string path) : node_(node), path_(std::move(path)) {
        StartRead(&request_);
      }

     private:
      void OnReadDone(bool ok) override {
        if (!ok) return Finish(grpc::Status::CANCELLED);
        const grpc::Slice slice(node_->Reply(path_));
        reply_ = grpc::ByteBuffer(&slice, 1);
        StartWriteAndFinish(&reply_, grpc::WriteOptions(), grpc::Status::OK);
      }
      void OnDone() override { delete this; }

      Node* const node_;
      const std::string path_;
      grpc::ByteBuffer request_;
      grpc::ByteBuffer reply_;
    };
    return new Call(this, context->method());
  }

 private:
  const int number_;
  std::atomic<bool> waits_ = false;
  std::atomic<bool> delivered_ = false;
};

int Serve(const std::string& folder, int count) {
  std::vector<std::unique_ptr<Node>> nodes;
  std::vector<std::unique_ptr<grpc::Server>> servers;
  for (int i = 0; i < count; ++i) {
    nodes.push_back(std::make_unique<Node>(i));
    grpc::ServerBuilder builder;
    builder.AddListeningPort("unix:" + folder + "/" + std::to_string(i),
                             grpc::InsecureServerCredentials());
    builder.RegisterCallbackGenericService(nodes.back().get());
    servers.push_back(builder.BuildAndStart());
    if (servers.back() == nullptr) {
      std::cerr << "cannot listen at " << folder << "/" << i << '\n';
      return 1;
    }
  }
  std::cout << "ready" << std::endl;
  std::string line;
  while (std::getline(std::cin, line)) {
    for (const std::unique_ptr<Node>& node : nodes) node->Tune();
  }
  for (const std::unique_ptr<grpc::Server>& server : servers) server->Shutdown();
  return 0;
}

}  // namespace
}  // namespace convtune::bench

int main(int argc, char** argv) {
  if (argc != 3 || std::atoi(argv[2]) < 1) {
    std::cerr << "usage: " << argv[0] << " FOLDER COUNT\n";
    return 2;
  }
  return convtune::bench::Serve(argv[1], std::atoi(argv[2]));
}
