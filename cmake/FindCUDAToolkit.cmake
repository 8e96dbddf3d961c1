# CMake's own module, called as if by a project that requires CMake 3.24: of one that requires 3.25,
# the module of Debian 12 (3.25.1) demands the library nvToolsExt, which CUDA 13 no longer has.
set(encore_minimum_required ${CMAKE_MINIMUM_REQUIRED_VERSION})
set(CMAKE_MINIMUM_REQUIRED_VERSION 3.24)
include("${CMAKE_ROOT}/Modules/FindCUDAToolkit.cmake")
set(CMAKE_MINIMUM_REQUIRED_VERSION ${encore_minimum_required})
