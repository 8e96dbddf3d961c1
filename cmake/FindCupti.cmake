# Finds cupti.h and provides encore::cupti_headers. Headers only: the library is opened at run time,
# by those verbs alone that trace kernels.
#
# Looked for in the CUDA toolkit (call find_package(CUDAToolkit) first), then in .deps/python, where
# ./dev setup puts it when the toolkit lacks it.
set(cupti_hints "${PROJECT_SOURCE_DIR}/.deps/python/nvidia/cu13/include")
foreach(directory IN LISTS CUDAToolkit_INCLUDE_DIRS)
  list(PREPEND cupti_hints "${directory}" "${directory}/../extras/CUPTI/include")
endforeach()
find_path(Cupti_INCLUDE_DIR cupti.h HINTS ${cupti_hints})
mark_as_advanced(Cupti_INCLUDE_DIR)

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(Cupti
  REQUIRED_VARS Cupti_INCLUDE_DIR
  REASON_FAILURE_MESSAGE "run ./dev setup, which fetches cupti.h")

if(Cupti_FOUND AND NOT TARGET encore::cupti_headers)
  add_library(encore::cupti_headers INTERFACE IMPORTED GLOBAL)
  target_include_directories(encore::cupti_headers INTERFACE "${Cupti_INCLUDE_DIR}")
endif()
