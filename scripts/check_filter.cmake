# cmake -DFILTER=... -P check_filter.cmake: fails unless FILTER is a valid regular expression, as
# for ctest -R.
string(REGEX MATCH "${FILTER}" ignored "a name")
