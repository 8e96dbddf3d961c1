# Writes source_hash.cc: a hash of the files that it is given, and of what compiles them.
#   cmake -DOUTPUT=source_hash.cc -DBUILD="compiler and flags" -P hash_sources.cmake -- FILE...
cmake_minimum_required(VERSION 3.25)
set(hashes "${BUILD}\n")
set(is_file FALSE)
math(EXPR last "${CMAKE_ARGC} - 1")
foreach(i RANGE ${last})
  if(is_file)
    file(SHA256 "${CMAKE_ARGV${i}}" hash)
    string(APPEND hashes "${hash}\n")
  elseif(CMAKE_ARGV${i} STREQUAL "--")
    set(is_file TRUE)
  endif()
endforeach()
string(SHA256 all "${hashes}")
string(SUBSTRING "${all}" 0 16 all)
file(WRITE "${OUTPUT}"
"#include \"backend/cuda/source_hash.h\"

namespace encore::cuda {
const std::string_view kSourceHash = \"${all}\";
}  // namespace encore::cuda
")
