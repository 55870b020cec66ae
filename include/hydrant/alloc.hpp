// hydrant/alloc.hpp - hydrant/alloc.h for C++ containers: a std::pmr memory resource and an allocator.
//
//     std::pmr::vector<double> field(hydrant::alloc::resource());
//     std::vector<double, hydrant::alloc::Allocator<double>> other(1 << 20);
//
// Header only, C++17. Memory, threads and cost are those of hydrant/alloc.h. Errors: std::bad_alloc, or
// std::abort() if exceptions are disabled.
#ifndef HYDRANT_ALLOC_HPP
#define HYDRANT_ALLOC_HPP

#include <hydrant/alloc.h>

#include <cstddef>
#include <cstdlib>
#include <limits>
#include <memory_resource>
#include <new>

namespace hydrant::alloc {

namespace detail {

[[noreturn]] inline void refuse() {
#if defined(__cpp_exceptions)
  throw std::bad_alloc();
#else
  std::abort();
#endif
}

inline void* allocate(std::size_t bytes, std::size_t alignment) {
  void* p = hydrant_aligned_alloc(alignment, bytes);
  if (p == nullptr) refuse();
  return p;
}

}  // namespace detail

// Private memory. Stateless: all objects are equal.
class Resource final : public std::pmr::memory_resource {
 private:
  void* do_allocate(std::size_t bytes, std::size_t alignment) override {
    return detail::allocate(bytes, alignment);
  }
  void do_deallocate(void* p, std::size_t /*bytes*/, std::size_t /*alignment*/) override {
    hydrant_free(p);
  }
  bool do_is_equal(const std::pmr::memory_resource& other) const noexcept override {
    // Each program or library that includes this header has one object. Without RTTI only identity can
    // be compared.
    return this == &other;
  }
};

// Returns the same object every time; it lives until the process ends.
inline std::pmr::memory_resource* resource() noexcept {
  // Never destroyed, because static containers may outlive static objects.
  alignas(Resource) static unsigned char storage[sizeof(Resource)];
  static std::pmr::memory_resource* const made = ::new (static_cast<void*>(storage)) Resource;
  return made;
}

// For standard containers. Stateless: all objects are equal, whatever their type.
template <class T>
class Allocator {
 public:
  using value_type = T;

  Allocator() noexcept = default;
  template <class Other>
  Allocator(const Allocator<Other>&) noexcept {
  }  // NOLINT(google-explicit-constructor): as allocators are

  [[nodiscard]] T* allocate(std::size_t count) {
    if (count > std::numeric_limits<std::size_t>::max() / sizeof(T)) detail::refuse();
    return static_cast<T*>(detail::allocate(count * sizeof(T), alignof(T)));
  }
  void deallocate(T* p, std::size_t /*count*/) noexcept { hydrant_free(p); }

  template <class Other>
  friend bool operator==(const Allocator&, const Allocator<Other>&) noexcept {
    return true;
  }
  template <class Other>
  friend bool operator!=(const Allocator&, const Allocator<Other>&) noexcept {
    return false;
  }
};

}  // namespace hydrant::alloc

#endif  // HYDRANT_ALLOC_HPP
