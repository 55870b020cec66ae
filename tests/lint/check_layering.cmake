# cmake -DROOT=<tree> -P check_layering.cmake: reports every #include that layers.txt does not
# allow, and system headers outside the folders that may use them. Tests and benchmarks may include anything.
cmake_minimum_required(VERSION 3.25)

file(STRINGS "${CMAKE_CURRENT_LIST_DIR}/layers.txt" rows REGEX "^[a-z]")
set(layers "")
foreach(row IN LISTS rows)
  string(REGEX MATCHALL "[^ ]+" words "${row}")
  list(POP_FRONT words layer)
  list(APPEND layers "${layer}")
  set(allowed_${layer} "${layer};${words}")
endforeach()
list(SORT layers ORDER DESCENDING)  # firehose/base before firehose

# Pairs of a system header and the only files that may include it.
set(doors
    "^<infiniband/" "^(firehose/registrars|rdma)/ibv/"
    "^<rdma/" "^rdma/ibv/"
    "^<pmix" "^rdma/bootstrap/bootstrap_pmix"
    "^<gasnet(ex)?\\.h>" "^(include|am|extended)/"
    "^<liburing" "^firehose/registrars/"
    "^<jemalloc/" "^firehose/watch/arena/jemalloc/"
    "^<uc[mpst]/" "^$")

function(layer_of path out)
  set(found "")
  foreach(layer IN LISTS layers)
    string(FIND "${path}" "${layer}/" at)
    if(at EQUAL 0)
      set(found "${layer}")
      break()
    endif()
  endforeach()
  set(${out} "${found}" PARENT_SCOPE)
endfunction()

function(check_quoted file from target)
  if(from STREQUAL "include")
    message(SEND_ERROR "${file}: public headers include with <...>, not \"${target}\"")
    return()
  endif()
  if(target MATCHES "(^|/)\\.\\.?/")
    message(SEND_ERROR "${file}: write the path from the repository root: \"${target}\"")
    return()
  endif()
  layer_of("${target}" to)
  if(to STREQUAL "" OR to STREQUAL "include")
    message(SEND_ERROR "${file}: not a path from the repository root to a layer: \"${target}\"")
  elseif(NOT to IN_LIST allowed_${from})
    message(SEND_ERROR "${file}: ${from} may not include ${to}: \"${target}\"")
  endif()
endfunction()

function(check_angled file target)
  set(rest ${doors})
  while(rest)
    list(POP_FRONT rest header users)
    if("<${target}>" MATCHES "${header}" AND NOT file MATCHES "${users}")
      message(SEND_ERROR "${file}: <${target}> does not belong here (see check_layering.cmake)")
    endif()
  endwhile()
  layer_of("${target}" to)
  if(NOT to STREQUAL "" AND EXISTS "${ROOT}/${target}")
    message(SEND_ERROR "${file}: quote project includes: <${target}>")
  endif()
endfunction()

set(globs "")
foreach(layer IN LISTS layers)
  foreach(suffix IN ITEMS h hpp c cpp)
    list(APPEND globs "${ROOT}/${layer}/*.${suffix}")
  endforeach()
endforeach()
file(GLOB_RECURSE files RELATIVE "${ROOT}" ${globs})
list(REMOVE_DUPLICATES files)
if(NOT files)
  message(FATAL_ERROR "no sources below ${ROOT}")
endif()

foreach(file IN LISTS files)
  layer_of("${file}" from)
  file(STRINGS "${ROOT}/${file}" lines REGEX "^[ \t]*#[ \t]*include")
  foreach(line IN LISTS lines)
    if(line MATCHES "\\.(c|cc|cpp)[\">]")
      message(SEND_ERROR "${file}: includes a source file: ${line}")
    elseif(line MATCHES "\"([^\"]+)\"")
      check_quoted("${file}" "${from}" "${CMAKE_MATCH_1}")
    elseif(line MATCHES "<([^>]+)>")
      check_angled("${file}" "${CMAKE_MATCH_1}")
    endif()
  endforeach()
endforeach()
list(LENGTH files count)
message(STATUS "${count} files looked at")
