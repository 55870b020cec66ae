// An array whose length is given when it is made, for noexcept code: without memory it is not ok().
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <new>
#include <span>

namespace hydrant {

template <typename T>
class FixedArray {
 public:
  FixedArray() noexcept = default;
  // Zeros.
  explicit FixedArray(size_t size) noexcept : items_(new (std::nothrow) T[size]()), size_(size) {}
  explicit FixedArray(std::span<const T> items) noexcept : FixedArray(items.size()) {
    if (ok()) std::copy(items.begin(), items.end(), items_.get());
  }

  bool ok() const noexcept { return items_ != nullptr; }
  size_t size() const noexcept { return size_; }
  T* data() const noexcept { return items_.get(); }
  T& operator[](size_t i) const noexcept { return items_[i]; }
  T* begin() const noexcept { return items_.get(); }
  T* end() const noexcept { return items_.get() + size_; }

 private:
  std::unique_ptr<T[]> items_;
  size_t size_ = 0;
};

}  // namespace hydrant
