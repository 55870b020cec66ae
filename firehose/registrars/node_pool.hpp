// Memory for the nodes of a map, allocated before a change begins: the change itself cannot fail, and neither
// allocates nor frees.
#pragma once

#include <cstddef>
#include <new>

namespace hydrant {

// Not thread-safe; outlives the maps whose allocators refer to it.
class NodePool {
 public:
  static constexpr size_t kNodeBytes = 64;

  NodePool() = default;
  ~NodePool() {
    while (free_ != nullptr) ::operator delete(pop());
  }
  NodePool(const NodePool&) = delete;
  NodePool& operator=(const NodePool&) = delete;

  // Ensures that the next `n` take() succeed. False if memory is used up.
  bool reserve(size_t n) noexcept {
    while (n_free_ < n) {
      void* node = ::operator new(kNodeBytes, std::nothrow);
      if (node == nullptr) return false;
      push(node);
    }
    return true;
  }

  bool has(size_t n) const noexcept { return n_free_ >= n; }
  // Frees what reserve() need not keep.
  void trim() noexcept {
    while (n_free_ > kMaxFree) ::operator delete(pop());
  }

  // Requires: reserve() or has().
  void* take() noexcept { return pop(); }
  void give(void* node) noexcept { push(node); }

  // For std::map: one node at a time.
  template <class T>
  struct Allocator {
    using value_type = T;
    explicit Allocator(NodePool* its_pool) noexcept : pool(its_pool) {}
    template <class U>
    // NOLINTNEXTLINE(google-explicit-constructor): as the standard's requirements of allocators have it
    Allocator(const Allocator<U>& other) noexcept : pool(other.pool) {}
    T* allocate(size_t /*one*/) noexcept {
      static_assert(sizeof(T) <= kNodeBytes && alignof(T) <= alignof(std::max_align_t));
      return static_cast<T*>(pool->take());
    }
    void deallocate(T* node, size_t /*one*/) noexcept { pool->give(node); }
    template <class U>
    bool operator==(const Allocator<U>& other) const noexcept {
      return pool == other.pool;
    }
    NodePool* pool;
  };

 private:
  static constexpr size_t kMaxFree = 256;
  struct Node {
    Node* next;
  };

  void push(void* node) noexcept {
    free_ = new (node) Node{free_};
    ++n_free_;
  }
  void* pop() noexcept {
    Node* node = free_;
    free_ = node->next;
    --n_free_;
    return node;
  }

  Node* free_ = nullptr;
  size_t n_free_ = 0;
};

}  // namespace hydrant
