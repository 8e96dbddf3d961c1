// Graph inputs that tests of fusions around attention have in common.
#pragma once

#include <string>

namespace encore::passes {

// Declares the inputs that say where tokens are, for one KV head of 32 elements.
inline const std::string kPlaces = R"(
  input %pos: i32[T]
  input %slots: i32[T] pad -1
  persistent %pages: i32[8,4]
  input %lens: i32[B]
  input %starts: i32[B+1] pad last
  weight %f: f32[16] = "f"
  state %kc: bf16[4,1,16,32]
  state %vc: bf16[4,1,16,32]
)";
// Declares two query heads as well, and one head each of K and V.
inline const std::string kInputs = R"(
  input %q: bf16[T,64]
  input %k: bf16[T,32]
  input %v: bf16[T,32])" + kPlaces;

}  // namespace encore::passes
