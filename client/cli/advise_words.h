// What the rows of `advise` say, in sentences.
#pragma once

#include <string>
#include <vector>

#include "client/cli/advise_bounds.h"
#include "client/cli/advise_variants.h"

namespace convtune {

struct AdviceRow {
  Variant variant;
  v1::BatchGetResult result;
  Advice advice;
  BoundShare bound;
};

// "tf32", "no tf32"; empty but for f32.
std::string MathWord(const Variant& variant);

// The ceilings that rows are held against, and which of them were not probed.
std::string CeilingWords(const Ceilings& ceilings);

// Which is the fastest per image, by how much, and what is to be known of that:
// the numerical error where its data type or math is narrower than what was
// asked for, and evidence that is below MEASURED. A row with such evidence is
// named as the fastest only where no row has better. The row that was asked for
// is among `rows`.
std::string Conclude(const std::vector<AdviceRow>& rows);

}  // namespace convtune
