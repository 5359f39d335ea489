#include "tests/simgpu/ptx/module.h"

#include <algorithm>
#include <cctype>
#include <map>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "proto/base/status_macros.h"

namespace convtune::simgpu::ptx {
namespace {

// An instruction without its type, the types that it has, and its operands:
//   D W    a register that is written, of the type's width, of twice the width
//   d w s  a register or a number that is read: the same widths, or 32 bits
//   r      as d, or a special register
//   V v    registers that are written, read: as many as the vector has, at least as wide as the
//   type P p    a predicate that is written, read m      a parameter a      an address l      a
//   label
struct Form {
  absl::string_view name;
  absl::string_view types;
  Op op;
  absl::string_view operands;
};

constexpr Form kForms[] = {
    {"ld.param", "u32 u64", Op::kMove, "Vm"},
    {"cvta.to.global", "u64", Op::kMove, "Dd"},
    {"mov", "u32 u64", Op::kMove, "Dr"},
    {"cvt.u64", "u32", Op::kMove, "Wd"},
    {"add", "u32 u64", Op::kAdd, "Ddd"},
    {"sub", "u32 u64", Op::kSub, "Ddd"},
    {"mul.lo", "u32 u64", Op::kMul, "Ddd"},
    {"mad.lo", "u32 u64", Op::kMad, "Dddd"},
    {"mul.wide", "u32", Op::kMulWide, "Wdd"},
    {"mad.wide", "u32", Op::kMadWide, "Wddw"},
    {"and", "b32 b64", Op::kAnd, "Ddd"},
    {"xor", "b32 b64", Op::kXor, "Ddd"},
    {"shl", "b32 b64", Op::kShl, "Dds"},
    {"selp", "u32 u64", Op::kSelect, "Dddp"},
    {"setp.eq", "u32 u64", Op::kEqual, "Pdd"},
    {"setp.ne", "u32 u64", Op::kNotEqual, "Pdd"},
    {"setp.lt", "u32 u64", Op::kLess, "Pdd"},
    {"setp.le", "u32 u64", Op::kLessOrEqual, "Pdd"},
    {"setp.gt", "u32 u64", Op::kGreater, "Pdd"},
    {"setp.ge", "u32 u64", Op::kGreaterOrEqual, "Pdd"},
    {"ld.global", "u8 u16 u32 u64", Op::kLoad, "Va"},
    {"ld.volatile.global", "u32 u64", Op::kLoad, "Va"},
    {"ld.global.v2", "u32 u64", Op::kLoad, "Va"},
    {"ld.global.v4", "u32", Op::kLoad, "Va"},
    {"st.global", "u8 u16 u32 u64", Op::kStore, "av"},
    {"st.volatile.global", "u32 u64", Op::kStore, "av"},
    {"st.global.v2", "u32 u64", Op::kStore, "av"},
    {"st.global.v4", "u32", Op::kStore, "av"},
    {"red.global.add", "u32 u64", Op::kAtomicAdd, "ad"},
    {"bra", "", Op::kBranch, "l"},
    {"ret", "", Op::kReturn, ""},
};

struct Token {
  absl::string_view text;
  int line = 0;
};

bool IsWord(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) || absl::StrContains("_$.%", c);
}

// Words of letters, digits and "_$.%", and all else one character each.
std::vector<Token> Tokenize(absl::string_view text) {
  std::vector<Token> tokens;
  int line = 1;
  for (size_t i = 0; i < text.size();) {
    if (text.substr(i, 2) == "//") {
      i = std::min(text.find('\n', i), text.size());
    } else if (std::isspace(static_cast<unsigned char>(text[i]))) {
      line += text[i++] == '\n';
    } else {
      const size_t begin = i++;
      while (IsWord(text[begin]) && i < text.size() && IsWord(text[i])) ++i;
      tokens.push_back({text.substr(begin, i - begin), line});
    }
  }
  return tokens;
}

class Parser {
 public:
  explicit Parser(absl::string_view text) : tokens_(Tokenize(text)) {
    tokens_.push_back({"", tokens_.empty() ? 1 : tokens_.back().line});
  }

  absl::StatusOr<std::vector<Kernel>> Parse() {
    for (const absl::string_view directive : {".version", ".target", ".address_size"}) {
      RETURN_IF_ERROR(Expect(directive));
      const absl::string_view value = Take();
      if (directive == ".address_size" && value != "64") return Error("addresses have 64 bits");
    }
    std::vector<Kernel> kernels;
    while (!Peek().empty()) {
      RETURN_IF_ERROR(ParseKernel());
      for (const Kernel& other : kernels) {
        if (other.name == kernel_.name) return Error(absl::StrCat("a second ", kernel_.name));
      }
      kernels.push_back(std::move(kernel_));
    }
    return kernels;
  }

 private:
  static constexpr int kPredicate = 1;
  static constexpr uint64_t kRubbish = 0xA5A5A5A5A5A5A5A5;

  struct Slot {
    int number = 0;
    int bits = 0;
  };

  absl::string_view Peek() const { return tokens_[next_].text; }
  absl::string_view Take() {
    const Token& token = tokens_[next_];
    line_ = token.line;
    if (next_ + 1 < tokens_.size()) ++next_;
    return token.text;
  }
  bool TakeIf(absl::string_view text) {
    const bool is = Peek() == text;
    if (is) Take();
    return is;
  }
  absl::Status Expect(absl::string_view text) {
    const absl::string_view found = Take();
    return found == text ? absl::OkStatus()
                         : Error(absl::StrCat("'", text, "' expected, is '", found, "'"));
  }
  absl::Status Error(absl::string_view what) const {
    return absl::InvalidArgumentError(absl::StrCat("line ", line_, ": ", what));
  }

  int AddSlot(uint64_t value) {
    kernel_.slots.push_back(value);
    return static_cast<int>(kernel_.slots.size()) - 1;
  }

  absl::Status ParseKernel() {
    kernel_ = Kernel();
    kernel_.slots.resize(Kernel::kSpecials);
    slots_ = {{"%tid.x", {Kernel::kTid, 32}},     {"%ntid.x", {Kernel::kNtid, 32}},
              {"%ctaid.x", {Kernel::kCtaid, 32}}, {"%nctaid.x", {Kernel::kNctaid, 32}},
              {"%smid", {Kernel::kSmid, 32}},     {"%globaltimer", {Kernel::kTimer, 64}},
              {"%clock64", {Kernel::kClock, 64}}};
    parameters_ = {};
    labels_ = {};
    branches_ = {};
    RETURN_IF_ERROR(Expect(".visible"));
    RETURN_IF_ERROR(Expect(".entry"));
    kernel_.name = std::string(Take());
    RETURN_IF_ERROR(Expect("("));
    while (!TakeIf(")")) {
      if (!kernel_.parameters.empty()) RETURN_IF_ERROR(Expect(","));
      RETURN_IF_ERROR(ParseParameter());
    }
    RETURN_IF_ERROR(Expect("{"));
    while (!TakeIf("}")) {
      RETURN_IF_ERROR(ParseStatement());
    }
    for (const auto& [instruction, label] : branches_) {
      const auto target = labels_.find(label.text);
      line_ = label.line;
      if (target == labels_.end()) return Error(absl::StrCat("no label '", label.text, "'"));
      kernel_.instructions[static_cast<size_t>(instruction)].target = target->second;
    }
    // The end of a kernel returns, too.
    kernel_.instructions.emplace_back();
    return absl::OkStatus();
  }

  absl::Status ParseParameter() {
    RETURN_IF_ERROR(Expect(".param"));
    ASSIGN_OR_RETURN(const int bits, TakeWidth());
    const absl::string_view name = Take();
    kernel_.parameters.push_back({std::string(name), bits / 8});
    if (!parameters_.insert({name, {AddSlot(0), bits}}).second) {
      return Error(absl::StrCat("a second '", name, "'"));
    }
    return absl::OkStatus();
  }

  // ".u32"
  absl::StatusOr<int> TakeWidth() {
    const absl::string_view type = Take();
    for (const int bits : {16, 32, 64}) {
      if (type == absl::StrCat(".u", bits)) return bits;
    }
    return Error(absl::StrCat("unknown type '", type, "'"));
  }

  absl::Status ParseStatement() {
    if (TakeIf(".reg")) return ParseRegisters();
    const absl::string_view first = Peek();
    if (tokens_[std::min(next_ + 1, tokens_.size() - 1)].text == ":") {
      Take();
      Take();
      if (!labels_.insert({first, static_cast<int>(kernel_.instructions.size())}).second) {
        return Error(absl::StrCat("a second label '", first, "'"));
      }
      return absl::OkStatus();
    }
    return ParseInstruction();
  }

  // ".reg .u32 %r<3>;": %r0 to %r2.
  absl::Status ParseRegisters() {
    int bits = kPredicate;
    if (!TakeIf(".pred")) {
      ASSIGN_OR_RETURN(bits, TakeWidth());
    }
    const absl::string_view name = Take();
    RETURN_IF_ERROR(Expect("<"));
    int count = 0;
    if (!absl::StartsWith(name, "%") || !absl::SimpleAtoi(Take(), &count) || count > 1000) {
      return Error("a register and how many there are expected");
    }
    for (int i = 0; i < count; ++i) {
      const uint64_t rubbish = bits == kPredicate ? 1 : kRubbish >> (64 - bits);
      if (!slots_.insert({absl::StrCat(name, i), {AddSlot(rubbish), bits}}).second) {
        return Error(absl::StrCat("a second '", name, i, "'"));
      }
    }
    RETURN_IF_ERROR(Expect(">"));
    return Expect(";");
  }

  absl::Status ParseInstruction() {
    Instruction instruction;
    if (TakeIf("@")) {
      instruction.negated = TakeIf("!");
      ASSIGN_OR_RETURN(instruction.guard, TakeRegister(kPredicate));
    }
    const absl::string_view word = Take();
    const size_t dot = std::min(word.rfind('.'), word.size());
    const absl::string_view type = absl::StripPrefix(word.substr(dot), ".");
    const Form* form = FindForm(word.substr(0, dot), type);
    if (form == nullptr) return Error(absl::StrCat("unknown instruction '", word, "'"));
    type_bits_ = 64;
    if (!type.empty() && !absl::SimpleAtoi(type.substr(1), &type_bits_))
      return Error("unknown type");
    instruction.op = form->op;
    instruction.bits = static_cast<uint8_t>(type_bits_);
    instruction.is_volatile = absl::StrContains(form->name, ".volatile");
    if (absl::EndsWith(form->name, ".v2")) instruction.count = 2;
    if (absl::EndsWith(form->name, ".v4")) instruction.count = 4;
    size_t argument = 0;
    for (size_t i = 0; i < form->operands.size(); ++i) {
      if (i > 0) RETURN_IF_ERROR(Expect(","));
      RETURN_IF_ERROR(ParseOperand(form->operands[i], &instruction, &argument));
    }
    // These two change while the thread runs.
    if (form->name == "mov" && instruction.arguments[0] == Kernel::kTimer)
      instruction.op = Op::kTimer;
    if (form->name == "mov" && instruction.arguments[0] == Kernel::kClock)
      instruction.op = Op::kClock;
    RETURN_IF_ERROR(Expect(";"));
    kernel_.instructions.push_back(instruction);
    return absl::OkStatus();
  }

  static const Form* FindForm(absl::string_view name, absl::string_view type) {
    for (const Form& form : kForms) {
      const std::vector<absl::string_view> types = absl::StrSplit(form.types, ' ');
      if (form.name == name && std::count(types.begin(), types.end(), type) > 0) return &form;
    }
    return nullptr;
  }

  absl::Status ParseOperand(char kind, Instruction* instruction, size_t* argument) {
    switch (kind) {
      case 'D':
      case 'W':
      case 'P': {
        ASSIGN_OR_RETURN(instruction->values[0], TakeRegister(Bits(kind)));
        return absl::OkStatus();
      }
      case 'V':
      case 'v':
        return ParseVector(instruction);
      case 'm': {
        RETURN_IF_ERROR(Expect("["));
        const auto found = parameters_.find(Take());
        if (found == parameters_.end() || found->second.bits != type_bits_) {
          return Error("a parameter of the instruction's type expected");
        }
        instruction->arguments[0] = found->second.number;
        return Expect("]");
      }
      case 'a': {
        RETURN_IF_ERROR(Expect("["));
        ASSIGN_OR_RETURN(instruction->arguments[(*argument)++], TakeRegister(64));
        if (TakeIf("+") && !absl::SimpleAtoi(Take(), &instruction->offset)) {
          return Error("an offset in bytes expected");
        }
        return Expect("]");
      }
      case 'l':
        branches_.push_back({static_cast<int>(kernel_.instructions.size()), tokens_[next_]});
        Take();
        return absl::OkStatus();
      default: {
        ASSIGN_OR_RETURN(instruction->arguments[(*argument)++],
                         TakeRead(Bits(kind), /*may_be_special=*/kind == 'r'));
        return absl::OkStatus();
      }
    }
  }

  int Bits(char kind) const {
    switch (kind) {
      case 'P':
      case 'p':
        return kPredicate;
      case 'W':
      case 'w':
        return 2 * type_bits_;
      case 's':
        return 32;
      default:
        return type_bits_;
    }
  }

  // "%r1", or "{%r1, %r2}" where the instruction has vectors.
  absl::Status ParseVector(Instruction* instruction) {
    if (instruction->count > 1) RETURN_IF_ERROR(Expect("{"));
    for (size_t i = 0; i < instruction->count; ++i) {
      if (i > 0) RETURN_IF_ERROR(Expect(","));
      // A wider register takes a narrower value.
      const auto found = slots_.find(Peek());
      const int bits = found != slots_.end() ? std::max(found->second.bits, type_bits_) : 0;
      ASSIGN_OR_RETURN(instruction->values[i], TakeRegister(bits));
    }
    return instruction->count > 1 ? Expect("}") : absl::OkStatus();
  }

  absl::StatusOr<int> TakeRegister(int bits, bool may_be_special = false) {
    const absl::string_view name = Take();
    const auto found = slots_.find(name);
    if (found == slots_.end() || found->second.bits != bits ||
        (found->second.number < Kernel::kSpecials && !may_be_special)) {
      return Error(absl::StrCat("'", name, "' is no register of the kind that is needed here"));
    }
    return found->second.number;
  }

  absl::StatusOr<int> TakeRead(int bits, bool may_be_special) {
    uint64_t value = 0;
    if (bits == kPredicate || !absl::SimpleAtoi(Peek(), &value)) {
      return TakeRegister(bits, may_be_special);
    }
    Take();
    if (bits < 64 && value >> bits != 0) return Error("the number has too many bits");
    return AddSlot(value);
  }

  std::vector<Token> tokens_;
  size_t next_ = 0;
  int line_ = 1;        // of the token taken last
  int type_bits_ = 64;  // of the instruction's type

  // Of the kernel that is being read.
  Kernel kernel_;
  std::map<std::string, Slot, std::less<>> slots_;  // by name
  std::map<absl::string_view, Slot> parameters_;
  std::map<absl::string_view, int> labels_;
  std::vector<std::pair<int, Token>> branches_;  // instructions and their labels
};

}  // namespace

absl::StatusOr<Module> Module::Parse(std::string_view text) {
  Module module;
  ASSIGN_OR_RETURN(module.kernels_, Parser({text.data(), text.size()}).Parse());
  return module;
}

const Kernel* Module::Find(std::string_view name) const {
  const auto found = std::find_if(kernels_.begin(), kernels_.end(),
                                  [name](const Kernel& kernel) { return kernel.name == name; });
  return found != kernels_.end() ? &*found : nullptr;
}

}  // namespace convtune::simgpu::ptx
