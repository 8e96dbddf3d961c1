# cmake -DOUTPUT=FILE -DSOURCE=DIR -DVERSION=... -DBUILD=... -DCUDA=... -DARCHITECTURES=... -P BuildInfo.cmake
#
# Writes a C++ file whose function `build_info()` says what a binary is made of. The file changes only where that does.
set(commit unknown)
find_program(GIT git)
if(GIT AND EXISTS "${SOURCE}/.git")
  execute_process(COMMAND "${GIT}" -C "${SOURCE}" rev-parse --short HEAD OUTPUT_VARIABLE commit OUTPUT_STRIP_TRAILING_WHITESPACE
    ERROR_QUIET RESULT_VARIABLE failed)
  if(failed)
    set(commit unknown)
  else()
    execute_process(COMMAND "${GIT}" -C "${SOURCE}" diff-index --quiet HEAD -- RESULT_VARIABLE has_changes ERROR_QUIET)
    if(has_changes)
      string(APPEND commit "+changes")
    endif()
  endif()
endif()

set(text "#include \"cli/build_info.h\"

namespace encore::cli {

const BuildInfo& build_info() {
  static const BuildInfo info{.version = \"${VERSION}\",
                              .commit = \"${commit}\",
                              .build = \"${BUILD}\",
                              .cuda = \"${CUDA}\",
                              .architectures = \"${ARCHITECTURES}\"};
  return info;
}

}  // namespace encore::cli
")
set(before "")
if(EXISTS "${OUTPUT}")
  file(READ "${OUTPUT}" before)
endif()
if(NOT before STREQUAL text)
  file(WRITE "${OUTPUT}" "${text}")
endif()
