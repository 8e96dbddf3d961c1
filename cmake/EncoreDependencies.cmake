# What Encore takes from Debian, linked statically so that the one binary travels.
find_package(Threads REQUIRED)
include(GoogleTest)
if(ENCORE_TESTS)
  find_package(GTest REQUIRED)
endif()

function(encore_static_library target)
  cmake_parse_arguments(ARG "" "PACKAGE" "NAMES" ${ARGN})
  find_library(${target}_ARCHIVE NAMES ${ARG_NAMES})
  if(NOT ${target}_ARCHIVE)
    message(FATAL_ERROR "${ARG_NAMES} not found: run ./dev setup (Debian package ${ARG_PACKAGE})")
  endif()
  add_library(${target} STATIC IMPORTED GLOBAL)
  set_target_properties(${target} PROPERTIES IMPORTED_LOCATION "${${target}_ARCHIVE}")
endfunction()

encore_static_library(encore::pcre2 NAMES libpcre2-8.a PACKAGE libpcre2-dev)
encore_static_library(encore::json NAMES libboost_json.a PACKAGE libboost-json1.81-dev)
encore_static_library(encore::container NAMES libboost_container.a PACKAGE libboost-json1.81-dev)
target_link_libraries(encore::json INTERFACE encore::container)
encore_static_library(encore::yaml NAMES libyaml-cpp.a PACKAGE libyaml-cpp-dev)
encore_static_library(encore::sodium NAMES libsodium.a PACKAGE libsodium-dev)
encore_static_library(encore::crypto NAMES libcrypto.a PACKAGE libssl-dev)
encore_static_library(encore::ssl NAMES libssl.a PACKAGE libssl-dev)
target_link_libraries(encore::crypto INTERFACE Threads::Threads ${CMAKE_DL_LIBS})
target_link_libraries(encore::ssl INTERFACE encore::crypto)

# Built from its source archive by ./dev setup: once for all presets, without their sanitizers.
set(ENCORE_XGRAMMAR "${PROJECT_SOURCE_DIR}/.deps/xgrammar" CACHE PATH "Where xgrammar's library and headers are")
if(NOT EXISTS "${ENCORE_XGRAMMAR}/lib/libxgrammar.a")
  message(FATAL_ERROR "${ENCORE_XGRAMMAR} has no lib/libxgrammar.a: run ./dev setup, which builds it, or set ENCORE_XGRAMMAR")
endif()
add_library(encore::xgrammar STATIC IMPORTED GLOBAL)
set_target_properties(encore::xgrammar PROPERTIES
  IMPORTED_LOCATION "${ENCORE_XGRAMMAR}/lib/libxgrammar.a"
  INTERFACE_INCLUDE_DIRECTORIES "${ENCORE_XGRAMMAR}/include"
  INTERFACE_LINK_LIBRARIES Threads::Threads)

find_program(CCACHE ccache)
if(CCACHE AND NOT DEFINED CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CCACHE})
  set(CMAKE_CUDA_COMPILER_LAUNCHER ${CCACHE})
endif()

find_program(MOLD mold)
if(MOLD)
  add_link_options(-fuse-ld=mold)
endif()
# Targets of fuzzing link it as a library: the address sanitizer has to see what is thrown, or the stack that an exception of
# xgrammar leaves stays marked, and later uses of it are findings.
if(NOT ENCORE_SANITIZE MATCHES fuzzer)
  add_link_options(-static-libstdc++ -static-libgcc)
endif()

if(ENCORE_CUDA)
  set(CMAKE_CUDA_ARCHITECTURES 90a-real)
  set(CMAKE_CUDA_STANDARD 20)
  set(CMAKE_CUDA_RUNTIME_LIBRARY Static)
  enable_language(CUDA)
  find_package(CUDAToolkit REQUIRED)
endif()
