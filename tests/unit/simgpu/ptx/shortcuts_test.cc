// A short cut does to memory what the instructions do: each runs on a copy.
#include "tests/simgpu/ptx/shortcuts.h"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "tests/unit/simgpu/ptx/fake_machine.h"

namespace convtune::simgpu::ptx {
namespace {

class ShortcutsTest : public ::testing::Test {
 protected:
  // Runs the kernel both ways on `memory`, and compares all of it and the errors.
  // The first and last `beyond` bytes are not the GPU's.
  void Compare(const std::string& kernel, Grid grid, const std::vector<uint64_t>& arguments,
               std::vector<uint8_t>* memory, size_t beyond = 0) {
    static const absl::StatusOr<Module> module = Module::Parse(KernelsText());
    ASSERT_TRUE(module.ok()) << module.status();
    FakeMachine machine;
    machine.Add(memory->data() + beyond, memory->size() - 2 * beyond);
    const std::vector<uint8_t> before = *memory;
    const cudaError_t error = ptx::Run(*module->Find(kernel), grid, arguments, 0, machine).error;
    const std::vector<uint8_t> after = *memory;
    *memory = before;  // in place
    const Shortcut* const shortcut = FindShortcut(kernel, arguments);
    ASSERT_NE(shortcut, nullptr);
    const cudaError_t shortcut_error = shortcut->run(arguments, grid, machine);
    EXPECT_EQ(shortcut_error, error) << kernel;
    errors_ += error != cudaSuccess ? 1 : 0;
    if (error == cudaSuccess) {
      EXPECT_TRUE(*memory == after) << kernel;
      changes_ += after != before ? 1 : 0;
    }
  }
  uint64_t Pick(uint64_t from, uint64_t to) { return from + random_() % (to - from + 1); }
  Grid PickGrid() {
    return {static_cast<uint32_t>(Pick(1, 9)), static_cast<uint32_t>(Pick(1, 40))};
  }

  std::mt19937_64 random_{20};
  int errors_ = 0;
  int changes_ = 0;
};

TEST_F(ShortcutsTest, Scan) {
  for (int i = 0; i < 2000; ++i) {
    std::vector<uint8_t> memory(8192);
    // Few different bytes, so that masks are met.
    for (uint8_t& byte : memory) byte = static_cast<uint8_t>(0xFF << (random_() % 3));
    const uint64_t size = uint64_t{1} << (random_() % 4);
    const uint64_t mask = i % 8 == 0   ? 0
                          : i % 8 == 1 ? random_()
                                       : (uint64_t{1} << (8 * size - 1)) | (random_() & 0x80808080);
    const uint64_t base = Address(memory.data());
    const uint64_t misaligned = i % 50 == 3 ? 1 : 0;
    const uint64_t count = i % 50 == 4 ? random_() : Pick(0, 7000 / size);
    Compare("convtune_scan", PickGrid(),
            {base + 1024 + misaligned, count, size, mask, base + (i % 50 == 5 ? 4 : 64)}, &memory,
            i % 50 == 6 ? 128 : 0);
  }
  EXPECT_GT(errors_, 50);
  EXPECT_GT(changes_, 500);
}

TEST_F(ShortcutsTest, ScanOfOtherSizesHasNone) {
  EXPECT_EQ(FindShortcut("convtune_scan", {0, 1, 3, 0, 0}), nullptr);
  EXPECT_EQ(FindShortcut("convtune_scan", {0, 1, 0, 0, 0}), nullptr);
  EXPECT_EQ(FindShortcut("convtune_stamp", {0}), nullptr);
}

TEST_F(ShortcutsTest, Gather) {
  for (int i = 0; i < 1000; ++i) {
    std::vector<uint8_t> memory(16384);
    for (uint8_t& byte : memory) byte = static_cast<uint8_t>(random_());
    const uint64_t count = Pick(0, 400);
    const uint64_t size = Pick(0, 9);
    const uint64_t base = Address(memory.data());
    auto* const offsets = reinterpret_cast<uint64_t*>(memory.data() + 64);
    for (uint64_t k = 0; k < count; ++k) offsets[k] = Pick(0, 3900);
    if (i % 20 == 1) offsets[0] = random_();
    Compare("convtune_gather", PickGrid(),
            {base + 4096, base + 64 + (i % 20 == 2 ? 4 : 0), count, size, base + 8192}, &memory,
            i % 20 == 3 ? 72 : 0);
  }
  EXPECT_GT(errors_, 50);
  EXPECT_GT(changes_, 500);
}

TEST_F(ShortcutsTest, Sweep) {
  for (int i = 0; i < 500; ++i) {
    std::vector<uint8_t> memory(8192);
    for (uint8_t& byte : memory) byte = static_cast<uint8_t>(random_());
    const uint64_t base = (Address(memory.data()) + 15) / 16 * 16;
    Compare("convtune_sweep", PickGrid(),
            {base + (i % 20 == 1 ? 8 : 0), i % 20 == 2 ? random_() : Pick(0, 511), base}, &memory,
            i % 20 == 3 ? 32 : 0);
  }
  EXPECT_GT(errors_, 50);
}

TEST_F(ShortcutsTest, TrafficIsTheMemoryOfTheKernelsData) {
  const Shortcut* shortcut = FindShortcut("convtune_sweep", {4096, 100, 0});
  EXPECT_EQ(Address(shortcut->traffic({4096, 100, 0}).data), 4096);
  EXPECT_EQ(shortcut->traffic({4096, 100, 0}).bytes, 1600);
  const std::vector<uint64_t> scan = {4096, 100, 4, 1, 0};
  EXPECT_EQ(FindShortcut("convtune_scan", scan)->traffic(scan).bytes, 400);
}

}  // namespace
}  // namespace convtune::simgpu::ptx
