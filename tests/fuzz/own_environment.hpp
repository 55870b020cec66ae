// Environments of single inputs.
#pragma once

#include "tests/fuzz/fuzz_target.hpp"

#include <span>
#include <string>
#include <unistd.h>
#include <utility>
#include <vector>

namespace hydrant::fuzz {

// While it lives, these variables ("NAME=value") are the environment of the process.
class OwnEnvironment {
 public:
  explicit OwnEnvironment(std::vector<std::string> variables) : texts_(std::move(variables)) {
    for (std::string& one : texts_) pointers_.push_back(one.data());
    pointers_.push_back(nullptr);
    environ = pointers_.data();
  }
  ~OwnEnvironment() { environ = before_; }
  OwnEnvironment(const OwnEnvironment&) = delete;
  OwnEnvironment& operator=(const OwnEnvironment&) = delete;

 private:
  std::vector<std::string> texts_;
  std::vector<char*> pointers_;
  char** const before_ = environ;
};

// The lines of an input, cut at zero bytes as well; a variable's text has none.
inline std::vector<std::string> lines_of(std::span<const uint8_t> bytes) {
  std::vector<std::string> lines;
  bool is_new = true;
  for (const uint8_t one : bytes) {
    if (std::exchange(is_new, one == '\n' || one == 0)) lines.emplace_back();
    if (!is_new) lines.back() += static_cast<char>(one);
  }
  return lines;
}

}  // namespace hydrant::fuzz
