// The client of GASNet's API in C++, with a library of C++ and a thread of its own.
#include <future>
#include <string>

#include "../gasnet_client.c"

static const std::string text =
    std::async(std::launch::async, [] { return std::string("a thread"); }).get();
