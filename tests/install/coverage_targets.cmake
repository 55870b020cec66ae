# For the outside projects here: programs that check whether the hooks came with the libraries that they link
# (coverage_program.c). Include it where Hydrant::firehose exists. cmake_consumer.sh runs them.
set(folder "${CMAKE_CURRENT_LIST_DIR}")

add_executable(covered "${folder}/coverage_program.c" "${folder}/coverage_library.c")
target_link_libraries(covered PRIVATE Hydrant::firehose)

add_executable(covered_nohooks "${folder}/coverage_program.c" "${folder}/coverage_library.c")
target_link_libraries(covered_nohooks PRIVATE Hydrant::firehose_nohooks)

# A static library brings them to the program that links it; a shared one cannot.
foreach(kind IN ITEMS STATIC SHARED)
  add_library(coverage_${kind} ${kind} "${folder}/coverage_library.c")
  target_link_libraries(coverage_${kind} PRIVATE Hydrant::firehose)
  add_executable(covered_by_${kind} "${folder}/coverage_program.c")
  target_link_libraries(covered_by_${kind} PRIVATE coverage_${kind})
endforeach()
foreach(target IN ITEMS covered covered_nohooks coverage_STATIC coverage_SHARED covered_by_STATIC
                        covered_by_SHARED)
  target_compile_options(${target} PRIVATE -fno-builtin)
  target_link_libraries(${target} PRIVATE dl)
endforeach()
