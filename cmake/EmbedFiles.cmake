# cmake -DOUTPUT=FILE -DMODULE=NAME -DHEADER=NAME.h -P EmbedFiles.cmake -- FILE...
#
# Writes a C++ file whose function `embedded_files()`, which the module's header declares, gives each FILE's name and bytes.
set(files)
set(is_file FALSE)
foreach(i RANGE ${CMAKE_ARGC})
  if(is_file AND DEFINED CMAKE_ARGV${i})
    list(APPEND files "${CMAKE_ARGV${i}}")
  elseif("${CMAKE_ARGV${i}}" STREQUAL "--")
    set(is_file TRUE)
  endif()
endforeach()

set(arrays "")
set(rows "")
set(number 0)
foreach(file IN LISTS files)
  file(READ "${file}" bytes HEX)
  string(REGEX REPLACE "(..)" "0x\\1," bytes "${bytes}")
  get_filename_component(name "${file}" NAME)
  string(APPEND arrays "constexpr unsigned char kBytes${number}[] = {${bytes}};\n")
  string(APPEND rows "      {\"${name}\", {reinterpret_cast<const char*>(kBytes${number}), sizeof(kBytes${number})}},\n")
  math(EXPR number "${number} + 1")
endforeach()
file(WRITE "${OUTPUT}" "#include \"${MODULE}/${HEADER}\"

namespace encore::${MODULE} {
namespace {

${arrays}
}  // namespace

std::span<const EmbeddedFile> embedded_files() {
  static const EmbeddedFile files[] = {
${rows}  };
  return files;
}

}  // namespace encore::${MODULE}
")
