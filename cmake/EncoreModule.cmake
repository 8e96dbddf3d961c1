# encore_module(NAME SOURCES a.cc ... [DEPENDS module ...] [LINK library ...] [TESTS a_test.cc ... [TESTS_DEPEND module ...]])
#
# A module is the static library encore_NAME in src/NAME; its tests are one executable, NAME_test.
# `./dev layers` holds the table of which module may include which.
function(encore_module name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPENDS;LINK;TESTS;TESTS_DEPEND" ${ARGN})
  add_library(encore_${name} STATIC ${ARG_SOURCES})
  encore_compile_options(encore_${name})
  target_include_directories(encore_${name} PUBLIC "${PROJECT_SOURCE_DIR}/src")
  list(TRANSFORM ARG_DEPENDS PREPEND encore_)
  target_link_libraries(encore_${name} PUBLIC ${ARG_DEPENDS} ${ARG_LINK})
  encore_has_tests(${name} has_tests)
  if(has_tests AND ARG_TESTS)
    list(TRANSFORM ARG_TESTS_DEPEND PREPEND encore_)
    encore_test(${name}_test SOURCES ${ARG_TESTS} LINK encore_${name} ${ARG_TESTS_DEPEND})
  endif()
endfunction()

# encore_embed(MODULE HEADER FILE...)
#
# Makes files a part of a module: `embedded_files()`, which HEADER of the module declares, gives their names and bytes.
function(encore_embed module header)
  set(embed "${PROJECT_SOURCE_DIR}/cmake/EmbedFiles.cmake")
  add_custom_command(OUTPUT embedded_files.cc
    COMMAND "${CMAKE_COMMAND}" -DOUTPUT=embedded_files.cc -DMODULE=${module} -DHEADER=${header} -P "${embed}" -- ${ARGN}
    DEPENDS ${ARGN} "${embed}"
    VERBATIM)
  target_sources(encore_${module} PRIVATE "${CMAKE_CURRENT_BINARY_DIR}/embedded_files.cc")
endfunction()

# Sets `result` to whether the tests of a module are built.
function(encore_has_tests module result)
  if(ENCORE_TESTS STREQUAL "ON" OR module IN_LIST ENCORE_TESTS)
    set(${result} TRUE PARENT_SCOPE)
  else()
    set(${result} FALSE PARENT_SCOPE)
  endif()
endfunction()

# Where the source tree lies, for tests that read files of it. A header rather than a definition: other
# tests then compile to the same object wherever the tree lies, so that a compiler cache serves them.
file(CONFIGURE OUTPUT "${PROJECT_BINARY_DIR}/generated/base/source_dir.h"
  CONTENT "#pragma once\n#define ENCORE_SOURCE_DIR \"@PROJECT_SOURCE_DIR@\"\n" @ONLY)

# encore_test(NAME SOURCES a_test.cc ... LINK target ...)
#
# A test with "Cuda" in its name needs a GPU and has the label gpu; the others have the label cpu.
function(encore_test name)
  cmake_parse_arguments(ARG "" "" "SOURCES;LINK" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  encore_compile_options(${name})
  # The tests' own code, not what they test: optimised, it takes twice as long to compile. Sanitizers check it for less.
  target_compile_options(${name} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-O0>)
  if(ENCORE_SANITIZE)
    target_compile_options(${name} PRIVATE
      $<$<COMPILE_LANGUAGE:CXX>:-fno-sanitize=undefined -fno-sanitize-address-use-after-scope>)
  endif()
  target_link_libraries(${name} PRIVATE ${ARG_LINK} GTest::gtest_main)
  target_include_directories(${name} PRIVATE "${PROJECT_BINARY_DIR}/generated")
  encore_discover_tests(${name} "*Cuda*")
endfunction()

# The tests of an executable that match the pattern `gpu` need a GPU.
function(encore_discover_tests name gpu)
  add_dependencies(all_tests ${name})
  set(environment "")
  if(ENCORE_SANITIZE)
    set(environment ENVIRONMENT ENCORE_CONFORMANCE=quick)
  endif()
  gtest_discover_tests(${name} TEST_FILTER "-${gpu}" DISCOVERY_TIMEOUT 60
    PROPERTIES LABELS cpu TIMEOUT ${ENCORE_TEST_TIMEOUT} ${environment})
  gtest_discover_tests(${name} TEST_FILTER "${gpu}" TEST_LIST ${name}_gpu_tests DISCOVERY_TIMEOUT 60
    PROPERTIES LABELS gpu TIMEOUT ${ENCORE_TEST_TIMEOUT})
endfunction()

function(encore_compile_options target)
  # g++ 12 warns about fields that a designated initializer leaves to their default.
  target_compile_options(${target} PRIVATE
    $<$<COMPILE_LANGUAGE:CXX>:-Wall -Wextra -Werror -Wno-missing-field-initializers>
    $<$<COMPILE_LANGUAGE:CUDA>:--expt-relaxed-constexpr -Xcompiler=-Wall,-Wextra,-Wno-missing-field-initializers -Werror=all-warnings>)
  # g++ takes what the files of a unity build define for what headers define.
  if(CMAKE_UNITY_BUILD)
    target_compile_options(${target} PRIVATE $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-subobject-linkage>)
  endif()
  if(ENCORE_SANITIZE)
    # Checks of every pointer take as long to compile as all others; the address sanitizer stops where a null one is used.
    target_compile_options(${target} PRIVATE
      $<$<COMPILE_LANGUAGE:CXX>:-fsanitize=${ENCORE_SANITIZE} -fno-sanitize=null,object-size,vptr -fno-omit-frame-pointer -fno-sanitize-recover=all>)
    target_link_options(${target} PUBLIC -fsanitize=${ENCORE_SANITIZE})
  endif()
  # The thread sanitizer knows no fences; Asio's queues have mutexes besides.
  if(ENCORE_SANITIZE STREQUAL "thread")
    target_compile_definitions(${target} PRIVATE BOOST_ASIO_DISABLE_FENCED_BLOCK)
  endif()
endfunction()
