# Finds cublasLt.h and provides encore::cublaslt_headers. Headers only: the library is opened at run
# time, so that the executable starts without it.
#
# Looked for in the CUDA toolkit (call find_package(CUDAToolkit) first), then in .deps/python, where
# ./dev setup puts it when the toolkit lacks it.
find_path(CublasLt_INCLUDE_DIR cublasLt.h
  HINTS ${CUDAToolkit_INCLUDE_DIRS} "${PROJECT_SOURCE_DIR}/.deps/python/nvidia/cu13/include")
mark_as_advanced(CublasLt_INCLUDE_DIR)

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(CublasLt
  REQUIRED_VARS CublasLt_INCLUDE_DIR
  REASON_FAILURE_MESSAGE "run ./dev setup, which fetches cublasLt.h")

if(CublasLt_FOUND AND NOT TARGET encore::cublaslt_headers)
  add_library(encore::cublaslt_headers INTERFACE IMPORTED GLOBAL)
  target_include_directories(encore::cublaslt_headers INTERFACE "${CublasLt_INCLUDE_DIR}")
endif()
