// convtune's own kernels, instruction by instruction, against what their comments say.
#include "tests/simgpu/ptx/interpreter.h"

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_replace.h"
#include "tests/unit/simgpu/ptx/fake_machine.h"

namespace convtune::simgpu::ptx {
namespace {

constexpr int64_t kStart = 1'000'000'003;

class InterpreterTest : public ::testing::Test {
 protected:
  RunEnd RunKernel(const std::string& name, Grid grid, std::vector<uint64_t> arguments) {
    static const absl::StatusOr<Module> module = Module::Parse(KernelsText());
    EXPECT_TRUE(module.ok()) << module.status();
    return ptx::Run(*module->Find("convtune_" + name), grid, arguments, kStart, machine_);
  }
  // How long the blocking kernel holds the stream.
  int64_t BlockedNs(uint64_t limit_ns) {
    const RunEnd end = RunKernel("blocking", {}, {Address(gate_.data()), limit_ns});
    EXPECT_EQ(end.error, cudaSuccess);
    return end.ns - kStart;
  }
  void AddGate(bool mapped) { machine_.Add(gate_.data(), sizeof(gate_), mapped); }

  FakeMachine machine_;
  alignas(8) std::array<uint32_t, 2> gate_ = {0, 0};
};

TEST_F(InterpreterTest, AGateThatIsOpenHoldsNothing) {
  AddGate(/*mapped=*/true);
  gate_[0] = 1;
  EXPECT_LT(BlockedNs(50'000), 1000);
  EXPECT_EQ(gate_[1], 0);
}

TEST_F(InterpreterTest, AGateThatTheHostOpensHoldsUntilThen) {
  AddGate(/*mapped=*/true);
  gate_[0] = 1;
  machine_.host_ns = kStart + 20'000;
  const int64_t ns = BlockedNs(50'000);
  EXPECT_GE(ns, 20'000);
  EXPECT_LT(ns, 21'000);
  EXPECT_EQ(gate_[1], 0);
}

TEST_F(InterpreterTest, AGateThatTheHostOpensTooLateIsGivenUp) {
  AddGate(/*mapped=*/true);
  gate_[0] = 1;
  machine_.host_ns = kStart + 60'000;
  EXPECT_NEAR(static_cast<double>(BlockedNs(50'000)), 50'000, 1000);
  EXPECT_EQ(gate_[1], 1);
}

TEST_F(InterpreterTest, AGateThatNobodyOpensIsGivenUpAtTheLimit) {
  AddGate(/*mapped=*/true);
  for (const uint64_t limit : {50'000, 500'000}) {
    for (const uint64_t step : {32, 1000}) {
      machine_.timer_step = step;
      gate_ = {0, 0};
      EXPECT_NEAR(static_cast<double>(BlockedNs(limit)), static_cast<double>(limit),
                  800.0 + static_cast<double>(step));
      EXPECT_EQ(gate_[0], 0);
      EXPECT_EQ(gate_[1], 1);
    }
  }
}

TEST_F(InterpreterTest, WithoutVolatileAGateStaysAsItWas) {
  AddGate(/*mapped=*/true);
  gate_[0] = 1;
  machine_.host_ns = kStart + 20'000;
  const absl::StatusOr<Module> module =
      Module::Parse(absl::StrReplaceAll(KernelsText(), {{"ld.volatile.global", "ld.global"}}));
  ASSERT_TRUE(module.ok()) << module.status();
  ptx::Run(*module->Find("convtune_blocking"), {}, {Address(gate_.data()), 50'000}, kStart,
           machine_);
  EXPECT_EQ(gate_[1], 1);
}

TEST_F(InterpreterTest, EachSmHasAClockOfItsOwn) {
  constexpr char kText[] = R"(
.version 5.0
.target sm_50
.address_size 64
.visible .entry clocks(.param .u64 out) {
  .reg .u32 %r<1>;
  .reg .u64 %d<3>;
  ld.param.u64 %d0, [out];
  mov.u32 %r0, %smid;
  mul.wide.u32 %d1, %r0, 8;
  add.u64 %d0, %d0, %d1;
  mov.u64 %d2, %clock64;
  st.global.u64 [%d0], %d2;
})";
  const absl::StatusOr<Module> module = Module::Parse(kText);
  ASSERT_TRUE(module.ok()) << module.status();
  std::vector<uint64_t> clocks(2);
  machine_.Add(clocks);
  EXPECT_EQ(
      ptx::Run(*module->Find("clocks"), {2, 1}, {Address(clocks.data())}, kStart, machine_).error,
      cudaSuccess);
  EXPECT_GT(clocks[1] - clocks[0], 100'000U);
}

TEST_F(InterpreterTest, TwoSecondsAreRunInFewSteps) {
  AddGate(/*mapped=*/true);
  EXPECT_NEAR(static_cast<double>(BlockedNs(2'000'000'000)), 2e9, 2e6);
  EXPECT_EQ(gate_[1], 1);
  EXPECT_LT(machine_.looks, 20'000);
}

TEST_F(InterpreterTest, FourCyclesForEachNanosecondEndItToo) {
  AddGate(/*mapped=*/true);
  machine_.timer_step = 0;
  EXPECT_NEAR(static_cast<double>(BlockedNs(50'000)), 4.0 * 50'000 / FakeMachine::kCyclesPerNs,
              1000);
  EXPECT_EQ(gate_[1], 1);
}

TEST_F(InterpreterTest, AGateInMemoryOfTheGpuWithoutALimit) {
  AddGate(/*mapped=*/false);
  // The host cannot have opened this one.
  machine_.host_ns = kStart + 1'000'000;
  EXPECT_LT(BlockedNs(0), 1000);
  EXPECT_EQ(gate_[1], 1);
  gate_ = {1, 0};
  EXPECT_LT(BlockedNs(50'000), 1000);
  EXPECT_EQ(gate_[1], 0);
}

TEST_F(InterpreterTest, AStampIsTakenOnSm0AsTheTimerMovesOn) {
  for (const uint64_t step : {32, 1000}) {
    machine_.timer_step = step;
    alignas(16) std::array<uint64_t, 2> stamp = {};
    machine_.Add(stamp.data(), sizeof(stamp));
    const RunEnd end = RunKernel("stamp", {132, 1}, {Address(stamp.data())});
    EXPECT_EQ(end.error, cudaSuccess);
    EXPECT_EQ(stamp[0], (kStart / step + 1) * step);
    // The clock is read a few instructions later.
    EXPECT_NEAR(static_cast<double>(stamp[1]),
                static_cast<double>(stamp[0] * FakeMachine::kCyclesPerNs), 20);
    EXPECT_LT(end.ns, kStart + static_cast<int64_t>(step) + 20);
  }
}

TEST_F(InterpreterTest, NoStampWithoutSm0OrWhereTheTimerStandsStill) {
  alignas(16) std::array<uint64_t, 2> stamp = {11, 12};
  machine_.Add(stamp.data(), sizeof(stamp));
  machine_.without_sm_0 = true;
  EXPECT_EQ(RunKernel("stamp", {264, 1}, {Address(stamp.data())}).error, cudaSuccess);
  machine_.without_sm_0 = false;
  machine_.timer_step = 0;
  const RunEnd end = RunKernel("stamp", {132, 1}, {Address(stamp.data())});
  EXPECT_EQ(end.error, cudaSuccess);
  EXPECT_NEAR(static_cast<double>(end.ns - kStart), 200'000.0 / FakeMachine::kCyclesPerNs, 20);
  EXPECT_EQ(stamp[0], 11);
  EXPECT_EQ(stamp[1], 12);
}

TEST_F(InterpreterTest, AStampHasToBeAligned) {
  alignas(16) std::array<uint64_t, 4> stamps = {};
  machine_.Add(stamps.data(), sizeof(stamps));
  EXPECT_EQ(RunKernel("stamp", {1, 1}, {Address(&stamps[1])}).error, cudaErrorMisalignedAddress);
  EXPECT_EQ(RunKernel("stamp", {1, 1}, {Address(&stamps[2]) + 16}).error, cudaErrorIllegalAddress);
}

TEST_F(InterpreterTest, GatherCopiesElements) {
  std::mt19937_64 random(1);
  std::vector<uint8_t> data(5000);
  for (uint8_t& byte : data) byte = static_cast<uint8_t>(random());
  for (const uint64_t size : {1, 2, 3, 4, 8}) {
    constexpr uint64_t kCount = 300;  // not a multiple of the block
    std::vector<uint64_t> offsets(kCount);
    for (uint64_t& offset : offsets) offset = random() % (data.size() - size);
    std::vector<uint8_t> out(kCount * size + 8, 0xEE);
    machine_.Add(data);
    machine_.Add(offsets);
    machine_.Add(out);
    EXPECT_EQ(RunKernel("gather", {2, 256},
                        {Address(data.data()), Address(offsets.data()), kCount, size,
                         Address(out.data())})
                  .error,
              cudaSuccess);
    for (uint64_t i = 0; i < kCount; ++i) {
      EXPECT_EQ(std::memcmp(&out[i * size], &data[offsets[i]], size), 0) << size << " " << i;
    }
    for (size_t i = kCount * size; i < out.size(); ++i) EXPECT_EQ(out[i], 0xEE);
  }
}

TEST_F(InterpreterTest, ScanAddsWhatHasAllBits) {
  // Of 1, 2, 4 and 8 bytes: what a byte of 0x7F begins or ends with differs.
  const std::vector<uint8_t> bytes = {0x7F, 0xFF, 0x80, 0x7F, 0x00, 0x00, 0x80, 0x7F,
                                      0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF};
  std::vector<uint64_t> data(2);
  std::memcpy(data.data(), bytes.data(), bytes.size());
  machine_.Add(data);
  std::vector<uint64_t> counter = {5};
  machine_.Add(counter);
  const auto scan = [&](uint64_t count, uint64_t size, uint64_t mask) {
    EXPECT_EQ(RunKernel("scan", {3, 2},
                        {Address(data.data()), count, size, mask, Address(counter.data())})
                  .error,
              cudaSuccess);
    return counter[0];
  };
  EXPECT_EQ(scan(16, 1, 0x7F), 5 + 12);       // all but 0x80, 0x00, 0x00, 0x80
  EXPECT_EQ(scan(16, 1, 0x17F), 17);          // a bit that no byte has
  EXPECT_EQ(scan(7, 2, 0x7F80), 17 + 5);      // 0x7F80 twice, 0xFFFF three times
  EXPECT_EQ(scan(4, 4, 0x7F800000), 22 + 4);  // 0x7F80FF7F, 0x7F800000 and two of 0xFFFFFFFF
  EXPECT_EQ(scan(2, 8, 0x7FF0000000000000), 26 + 1);
  EXPECT_EQ(scan(0, 8, 1), 27);
}

TEST_F(InterpreterTest, SweepStoresTheOneXorThatItLooksFor) {
  std::vector<std::array<uint32_t, 4>> data(7);
  std::vector<uint32_t> sink = {9};
  machine_.Add(data);
  machine_.Add(sink);
  const auto sweep = [&] {
    EXPECT_EQ(RunKernel("sweep", {1, 3}, {Address(data.data()), 7, Address(sink.data())}).error,
              cudaSuccess);
    return sink[0];
  };
  EXPECT_EQ(sweep(), 9);
  // Of one thread: units 1 and 4 of the three threads' strides.
  data[1] = {2654435769 ^ 1, 2, 4, 8};
  data[4] = {8, 4, 2, 1};
  EXPECT_EQ(sweep(), 2654435769);
  // Of two threads.
  sink[0] = 9;
  std::swap(data[4], data[5]);
  EXPECT_EQ(sweep(), 9);
}

TEST_F(InterpreterTest, AddressesAreChecked) {
  std::vector<std::array<uint32_t, 4>> data(8);
  std::vector<uint32_t> sink = {0, 0};
  machine_.Add(data.data(), 7 * 16);
  machine_.Add(sink);
  const auto sweep = [&](uint64_t address, uint64_t count) {
    return RunKernel("sweep", {2, 2}, {address, count, Address(sink.data())}).error;
  };
  EXPECT_EQ(sweep(Address(data.data()), 7), cudaSuccess);
  EXPECT_EQ(sweep(Address(data.data()), 8), cudaErrorIllegalAddress);
  EXPECT_EQ(sweep(Address(data.data()) + 8, 1), cudaErrorMisalignedAddress);
  EXPECT_EQ(sweep(0, 1), cudaErrorIllegalAddress);
  EXPECT_EQ(sweep(0, 0), cudaSuccess);
}

// What a kernel that is one instruction leaves in d3 of d1 and d2.
uint64_t Result(const std::string& instruction, uint64_t d1, uint64_t d2) {
  const absl::StatusOr<Module> module = Module::Parse(
      ".version 5.0 .target sm_50 .address_size 64\n"
      ".visible .entry k(.param .u64 a, .param .u64 b, .param .u64 out) {\n"
      ".reg .pred %p<2>; .reg .u32 %r<4>; .reg .u64 %d<5>;\n"
      "ld.param.u64 %d1, [a]; ld.param.u64 %d2, [b]; ld.param.u64 %d4, [out];\n"
      "st.global.u64 [%d4], %d1; ld.global.u32 %r1, [%d4];\n"
      "st.global.u64 [%d4], %d2; ld.global.u32 %r2, [%d4];\n"
      "mov.u32 %r3, 0; mov.u64 %d3, 0;\n" +
      instruction + "\nst.global.u64 [%d4], %d3; @!%p1 bra END; END: }");
  EXPECT_TRUE(module.ok()) << module.status();
  std::vector<uint64_t> out = {0};
  FakeMachine machine;
  machine.Add(out);
  EXPECT_EQ(Run(module->kernels()[0], {}, {d1, d2, Address(out.data())}, 0, machine).error,
            cudaSuccess);
  return out[0];
}

TEST(CalculationTest, ResultsHaveTheirTypesWidth) {
  constexpr uint64_t kMost = UINT64_MAX;
  const std::string widen = " cvt.u64.u32 %d3, %r3;";
  EXPECT_EQ(Result("add.u32 %r3, %r1, %r2;" + widen, UINT32_MAX, 2), 1);
  EXPECT_EQ(Result("add.u64 %d3, %d1, %d2;", UINT32_MAX, 2), 0x100000001);
  EXPECT_EQ(Result("sub.u32 %r3, %r1, %r2;" + widen, 1, 2), UINT32_MAX);
  EXPECT_EQ(Result("sub.u64 %d3, %d1, %d2;", 1, 2), kMost);
  EXPECT_EQ(Result("mul.lo.u32 %r3, %r1, %r2;" + widen, 0x80000001, 2), 2);
  EXPECT_EQ(Result("mul.wide.u32 %d3, %r1, %r2;", 0x80000001, 2), 0x100000002);
  EXPECT_EQ(Result("mad.lo.u32 %r3, %r1, %r2, %r2;" + widen, 0x80000001, 2), 4);
  EXPECT_EQ(Result("mad.wide.u32 %d3, %r1, %r2, %d2;", 0x80000001, 2), 0x100000004);
  EXPECT_EQ(Result("shl.b64 %d3, %d1, 4;", 0xF00000000000000F, 0), 0xF0);
  EXPECT_EQ(Result("shl.b64 %d3, %d1, 64;", 1, 0), 0);
  EXPECT_EQ(Result("shl.b32 %r3, %r1, %r2;" + widen, 3, 31), 0x80000000);
  EXPECT_EQ(Result("and.b64 %d3, %d1, %d2;", 12, 10), 8);
  EXPECT_EQ(Result("xor.b64 %d3, %d1, %d2;", 12, 10), 6);
}

TEST(CalculationTest, PredicatesCompareUnsignedAndGuard) {
  const auto select = [](const std::string& compare, uint64_t a, uint64_t b) {
    return Result("setp." + compare + ".u64 %p1, %d1, %d2; selp.u64 %d3, 1, 2, %p1;", a, b) == 1;
  };
  EXPECT_TRUE(select("lt", 1, UINT64_MAX));
  EXPECT_FALSE(select("lt", 1, 1));
  EXPECT_TRUE(select("le", 1, 1));
  EXPECT_FALSE(select("le", 2, 1));
  EXPECT_TRUE(select("gt", UINT64_MAX, 1));
  EXPECT_FALSE(select("gt", 1, 1));
  EXPECT_TRUE(select("ge", 1, 1));
  EXPECT_FALSE(select("ge", 0, 1));
  EXPECT_TRUE(select("eq", 1, 1));
  EXPECT_FALSE(select("eq", 1ULL << 32, 0));
  EXPECT_TRUE(select("ne", 1ULL << 32, 0));
  EXPECT_EQ(Result("setp.eq.u32 %p1, %r1, %r2; @%p1 mov.u64 %d3, 5;", 1ULL << 32, 0), 5);
  EXPECT_EQ(Result("setp.eq.u32 %p1, %r1, %r2; @!%p1 mov.u64 %d3, 5;", 1ULL << 32, 0), 0);
}

}  // namespace
}  // namespace convtune::simgpu::ptx
