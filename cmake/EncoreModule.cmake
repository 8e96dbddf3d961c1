# encore_module(NAME SOURCES a.cc ... [DEPENDS module ...] [LINK library ...] [TESTS a_test.cc ...])
#
# A module is the static library encore_NAME in src/NAME; its tests are one executable, NAME_test.
# `./dev layers` holds the table of which module may include which.
function(encore_module name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPENDS;LINK;TESTS" ${ARGN})
  add_library(encore_${name} STATIC ${ARG_SOURCES})
  encore_compile_options(encore_${name})
  target_include_directories(encore_${name} PUBLIC "${PROJECT_SOURCE_DIR}/src")
  list(TRANSFORM ARG_DEPENDS PREPEND encore_)
  target_link_libraries(encore_${name} PUBLIC ${ARG_DEPENDS} ${ARG_LINK})
  if(ENCORE_TESTS AND ARG_TESTS)
    encore_test(${name}_test SOURCES ${ARG_TESTS} LINK encore_${name})
  endif()
endfunction()

# encore_test(NAME SOURCES a_test.cc ... LINK target ...)
#
# A test with "Cuda" in its name needs a GPU and has the label gpu; the others have the label cpu.
function(encore_test name)
  cmake_parse_arguments(ARG "" "" "SOURCES;LINK" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  encore_compile_options(${name})
  target_link_libraries(${name} PRIVATE ${ARG_LINK} GTest::gtest_main)
  target_compile_definitions(${name} PRIVATE ENCORE_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
  gtest_discover_tests(${name} TEST_FILTER "-*Cuda*" DISCOVERY_TIMEOUT 60
    PROPERTIES LABELS cpu TIMEOUT 300)
  gtest_discover_tests(${name} TEST_FILTER "*Cuda*" TEST_LIST ${name}_gpu_tests DISCOVERY_TIMEOUT 60
    PROPERTIES LABELS gpu TIMEOUT 300)
endfunction()

function(encore_compile_options target)
  # g++ 12 warns about fields that a designated initializer leaves to their default.
  target_compile_options(${target} PRIVATE
    $<$<COMPILE_LANGUAGE:CXX>:-Wall -Wextra -Werror -Wno-missing-field-initializers>
    $<$<COMPILE_LANGUAGE:CUDA>:--expt-relaxed-constexpr -Xcompiler=-Wall,-Wextra,-Wno-missing-field-initializers -Werror=all-warnings>)
  if(ENCORE_SANITIZE)
    target_compile_options(${target} PRIVATE
      $<$<COMPILE_LANGUAGE:CXX>:-fsanitize=${ENCORE_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all>)
    target_link_options(${target} PUBLIC -fsanitize=${ENCORE_SANITIZE})
  endif()
endfunction()
