// The large headers of the tests, compiled once for all test programs (HYDRANT_PRECOMPILED_TESTS). Headers of
// the project are not among them: they depend on macros that differ between programs.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <deque>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>
