// The text form of a problem, for example
//   fwd,x=16x64x56x56,w=64x64x3x3,pad=1x1,stride=1x1,dilation=1x1,groups=1,nhwc,f16,acc=f32
// Grammar and defaults: proto/model/README.md.
#pragma once

#include <string_view>
#include <vector>

#include "proto/model/problem/conv_problem.h"

namespace convtune {

// Reads the tokens into a spec without judging the problem itself. Adds a
// violation for each unknown, doubled or unreadable token; the field is the
// token's name as typed. Returns what could be read.
ConvProblemSpec ParseProblemTokens(std::string_view text, std::vector<Violation>* violations);

}  // namespace convtune
