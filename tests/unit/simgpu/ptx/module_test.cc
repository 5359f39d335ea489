#include "tests/simgpu/ptx/module.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "tests/unit/simgpu/ptx/fake_machine.h"

namespace convtune::simgpu::ptx {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

TEST(ModuleTest, KernelsAndTheirParameters) {
  const absl::StatusOr<Module> module = Module::Parse(KernelsText());
  ASSERT_TRUE(module.ok()) << module.status();
  const auto parameters = [&](std::string_view name) {
    std::string text;
    const Kernel* const kernel = module->Find(name);
    if (kernel == nullptr) return std::string("no kernel");
    for (const Parameter& each : kernel->parameters) {
      text += each.name + ":" + std::to_string(each.bytes) + " ";
    }
    return text;
  };
  EXPECT_EQ(parameters("convtune_blocking"), "p_gate:8 p_limit_ns:8 ");
  EXPECT_EQ(parameters("convtune_stamp"), "p_stamp:8 ");
  EXPECT_EQ(parameters("convtune_sweep"), "p_data:8 p_count:8 p_sink:8 ");
  EXPECT_EQ(parameters("convtune_gather"), "p_data:8 p_offsets:8 p_count:4 p_size:4 p_out:8 ");
  EXPECT_EQ(parameters("convtune_scan"), "p_data:8 p_count:8 p_size:4 p_mask:8 p_counter:8 ");
  EXPECT_EQ(module->kernels().size(), 5);
  EXPECT_EQ(module->Find("convtune_other"), nullptr);
}

// The message about a kernel whose 10th line is this.
std::string ErrorOfLine10(const std::string& line) {
  const std::string text =
      ".version 5.0\n.target sm_50\n.address_size 64\n.visible .entry k(.param .u64 p)\n{\n"
      ".reg .pred %p<2>;\n.reg .u32 %r<9>;\n.reg .u64 %d<9>;\nHERE:\n" +
      line + "\nret;\n}\n";
  const absl::StatusOr<Module> module = Module::Parse(text);
  return module.ok() ? "" : std::string(module.status().message());
}

TEST(ModuleTest, WhatItDoesNotKnowIsRefusedByLine) {
  EXPECT_EQ(ErrorOfLine10("@!%p1 bra HERE;"), "");
  EXPECT_EQ(ErrorOfLine10("mov.u32 %r1, %smid;"), "");
  EXPECT_EQ(ErrorOfLine10("div.u32 %r1, %r2, %r3;"), "line 10: unknown instruction 'div.u32'");
  EXPECT_EQ(ErrorOfLine10("add.s32 %r1, %r2, %r3;"), "line 10: unknown instruction 'add.s32'");
  EXPECT_EQ(ErrorOfLine10("and.u32 %r1, %r2, %r3;"), "line 10: unknown instruction 'and.u32'");
  EXPECT_EQ(ErrorOfLine10("bra.uni HERE;"), "line 10: unknown instruction 'bra.uni'");
  for (const char* const line : {"add.u32 %r1, %r2, %r9;",         // not declared
                                 "add.u32 %r1, %r2, %d3;",         // of another width
                                 "add.u32 %d1, %r2, %r3;",         //
                                 "add.u32 %r1, %r2, 4294967296;",  // more than 32 bits
                                 "add.u32 %r1, %r2;",              // one is missing
                                 "add.u32 %r1, %r2, %r3, %r4;",    // one too many
                                 "add.u32 %r1, %r2, %smid;",       // only mov reads these
                                 "mov.u32 %smid, %r1;",            //
                                 "mov.u32 %r1, %clock64;",         // of another width
                                 "mov.u32 %r1, %laneid;",          // not there
                                 "mul.wide.u32 %r1, %r2, %r3;",    // the result is wider
                                 "setp.eq.u32 %r1, %r2, %r3;",     // no predicate
                                 "@%r1 bra HERE;",                 //
                                 "bra THERE;",                     // no such label
                                 "ld.param.u64 %d1, [q];",         // no such parameter
                                 "ld.param.u32 %r1, [p];",         // of another type
                                 "ld.global.u64 %r1, [%d1];",      // too narrow
                                 "ld.global.u32 %r1, [%r2];",      // an address has 64 bits
                                 "ld.global.v4.u32 {%r1, %r2, %r3}, [%d1];",
                                 "ld.global.u32 %r1, [%d1+x];",  //
                                 "add.u32 %r1, %r2, 1 ret;"}) {
    EXPECT_THAT(ErrorOfLine10(line), StartsWith("line 10: ")) << line;
  }
}

TEST(ModuleTest, ARefusedLineOfOurOwnKernelsIsNamed) {
  std::string text = KernelsText();
  const std::string known = "xor.b32 %r9, %r9, %r6;";
  const size_t at = text.find(known);
  ASSERT_NE(at, std::string::npos);
  text.replace(at, known.size(), "lop3.b32 %r9, %r9, %r6, %r7, 1;");
  const auto line = std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(at), '\n');
  EXPECT_EQ(Module::Parse(text).status().message(),
            "line " + std::to_string(line + 1) + ": unknown instruction 'lop3.b32'");
}

TEST(ModuleTest, ATextThatEndsTooEarlyIsRefused) {
  const std::string text = KernelsText();
  EXPECT_FALSE(Module::Parse("").ok());
  for (size_t length = text.rfind('}'); length > text.rfind(".visible"); length -= 7) {
    EXPECT_FALSE(Module::Parse(text.substr(0, length)).ok()) << length;
  }
}

}  // namespace
}  // namespace convtune::simgpu::ptx
