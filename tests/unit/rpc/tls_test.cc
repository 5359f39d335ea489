#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "grpcpp/client_context.h"
#include "grpcpp/create_channel.h"
#include "grpcpp/security/credentials.h"
#include "tests/unit/rpc/rpc_test_server.h"

namespace convtune::rpc {
namespace {

using testing::HasSubstr;

std::string Read(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

class TlsTest : public testing::Test {
 protected:
  void SetUp() override {
    Authority("ca");
    Authority("stranger");
    Leaf("server", "ca");
    Leaf("client", "ca");
    Leaf("intruder", "stranger");
    Server::Options options = base_.Options();
    options.listen = {"localhost:0"};
    options.tls = {Path("server.crt"), Path("server.key"), Path("ca.crt")};
    auto created = Server::Create(options);
    ASSERT_TRUE(created.ok()) << created.status();
    server_ = *std::move(created);
  }

  std::string Path(const std::string& name) const { return base_.dir.path(name); }

  void Run(const std::string& arguments) {
    const std::string command = "openssl " + arguments + " >/dev/null 2>&1";
    ASSERT_EQ(std::system(command.c_str()), 0)
        << command << "\nthe program openssl is needed: deploy/install-deps --tests";
  }

  void Authority(const std::string& name) {
    Run("req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=" +
        name + " -keyout " + Path(name + ".key") + " -out " + Path(name + ".crt"));
  }

  void Leaf(const std::string& name, const std::string& authority) {
    std::ofstream(Path("san")) << "subjectAltName=DNS:localhost\n";
    Run("req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -subj /CN=" + name +
        " -keyout " + Path(name + ".key") + " -out " + Path(name + ".csr"));
    Run("x509 -req -days 2 -CAcreateserial -in " + Path(name + ".csr") + " -CA " +
        Path(authority + ".crt") + " -CAkey " + Path(authority + ".key") + " -extfile " +
        Path("san") + " -out " + Path(name + ".crt"));
  }

  // Calls over TCP, with a client certificate if `name` is not empty, of a server
  // whose certificate `authority` has signed.
  grpc::Status Call(const std::string& name, const std::string& authority = "ca") {
    grpc::SslCredentialsOptions options;
    options.pem_root_certs = Read(Path(authority + ".crt"));
    if (!name.empty()) {
      options.pem_cert_chain = Read(Path(name + ".crt"));
      options.pem_private_key = Read(Path(name + ".key"));
    }
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);  // a connection of its own
    const auto channel = grpc::CreateCustomChannel(server_->addresses().at(0),
                                                   grpc::SslCredentials(options), arguments);
    grpc::ClientContext context;
    v1::ListDevicesResponse response;
    return v1::TuningService::NewStub(channel)->ListDevices(&context, {}, &response);
  }

  // Replaces one of the server's files, as a rename does.
  void Replace(const std::string& name, const std::string& by) {
    std::filesystem::copy_file(Path(by), Path(name + ".new"));
    std::filesystem::rename(Path(name + ".new"), Path(name));
  }

  TestServer base_;
  std::unique_ptr<Server> server_;
};

TEST_F(TlsTest, ServesClientsAloneWhoseCertificateTheAuthoritySigned) {
  const grpc::Status status = Call("client");
  EXPECT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(Call("").error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(Call("intruder").error_code(), grpc::StatusCode::UNAVAILABLE);
}

TEST_F(TlsTest, FilesThatAreExchangedHoldForNewConnections) {
  Leaf("next", "stranger");
  ASSERT_TRUE(Call("client").ok());
  EXPECT_FALSE(Call("client", "stranger").ok());
  // In the middle of an exchange: the ones before stay.
  Replace("server.crt", "next.crt");
  EXPECT_THAT(std::string(server_->ReloadTls().message()), HasSubstr("--tls-key: "));
  EXPECT_TRUE(Call("client").ok());
  Replace("server.key", "next.key");
  Replace("ca.crt", "stranger.crt");
  // Nobody says so: connections find it out.
  WaitUntil([&] { return Call("intruder", "stranger").ok(); });
  EXPECT_FALSE(Call("client", "stranger").ok()) << "its authority is not asked any more";
}

TEST_F(TlsTest, ReloadTakesFilesUpAtOnce) {
  Leaf("next", "stranger");
  ASSERT_TRUE(Call("client").ok());
  Replace("server.crt", "next.crt");
  Replace("server.key", "next.key");
  EXPECT_TRUE(server_->ReloadTls().ok());
  EXPECT_TRUE(Call("client", "stranger").ok());
}

TEST_F(TlsTest, FilesThatAreNotWhatTheyMustBeAreErrorsWithTheirFlag) {
  const std::string no_pem = Path("san");
  const auto error = [this](const http2::ServerTlsFiles& files) {
    Server::Options options = base_.Options();
    options.listen = {"localhost:0"};
    options.tls = files;
    return std::string(Server::Create(options).status().message());
  };
  EXPECT_THAT(error({no_pem, Path("server.key"), Path("ca.crt")}), HasSubstr("--tls-cert: "));
  EXPECT_THAT(error({Path("server.crt"), no_pem, Path("ca.crt")}),
              HasSubstr("--tls-key: " + no_pem + " must be a PEM file with a private key"));
  EXPECT_THAT(error({Path("server.crt"), Path("client.key"), Path("ca.crt")}),
              HasSubstr("must be the key of " + Path("server.crt")));
  EXPECT_THAT(error({Path("server.crt"), Path("server.key"), no_pem}),
              HasSubstr("--tls-client-ca: "));
}

}  // namespace
}  // namespace convtune::rpc
