// A fixed-capacity array of the table space: addresses are taken at once, memory only when it is touched.
//
// Tables of the cache grow under a lock that the monitor's reader needs while allocators wait for it, so
// nothing in them comes from malloc. Elements start as zero bytes; no constructor or destructor runs.
#pragma once

#include "firehose/base/raw_memory.hpp"
#include "firehose/base/table_space.hpp"

#include <cstddef>
#include <type_traits>
#include <utility>

namespace hydrant {

template <class T>
class MappedArray {
  static_assert(std::is_trivially_destructible_v<T>);

 public:
  MappedArray() noexcept = default;
  MappedArray(MappedArray&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}
  MappedArray& operator=(MappedArray&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    return *this;
  }
  ~MappedArray() { reset(); }

  // False when the address space is refused. No effect on an array that is mapped: its size stays.
  [[nodiscard]] bool map(size_t count) noexcept {
    if (count == 0 || data_ != nullptr) return true;
    void* p = g_table_space.take(count * sizeof(T));
    if (p == nullptr) return false;
    data_ = static_cast<T*>(p);
    size_ = count;
    return true;
  }
  void reset() noexcept {
    if (data_ != nullptr) g_table_space.give(data_, bytes());
    data_ = nullptr;
    size_ = 0;
  }
  // Gives the memory back and keeps the addresses: all elements read as zero again.
  void clear() noexcept {
    if (data_ != nullptr) raw_clear(data_, bytes());
  }

  T& operator[](size_t i) noexcept { return data_[i]; }
  const T& operator[](size_t i) const noexcept { return data_[i]; }
  T* data() noexcept { return data_; }
  const T* data() const noexcept { return data_; }
  size_t size() const noexcept { return size_; }
  size_t bytes() const noexcept { return size_ * sizeof(T); }

 private:
  T* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace hydrant
