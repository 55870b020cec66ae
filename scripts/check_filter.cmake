# cmake -DFILTER=... -P check_filter.cmake: fails unless FILTER is a regular expression of CMake's, as ctest -R is.
string(REGEX MATCH "${FILTER}" ignored "a name")
