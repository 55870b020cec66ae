// Objects that no test may destroy: the library's map of addresses refers to their reservations.
#pragma once

#include <memory>
#include <utility>
#include <vector>

namespace hydrant::testing {

// A new T that is never destroyed, and stays reachable so that leak checkers do not report it.
template <class T, class... Arguments>
T& kept(Arguments&&... arguments) {
  static std::vector<std::unique_ptr<T>>& all = *new std::vector<std::unique_ptr<T>>;
  all.push_back(std::make_unique<T>(std::forward<Arguments>(arguments)...));
  return *all.back();
}

}  // namespace hydrant::testing
