// Determines which families of functions reach the hooks in a dynamic program, by resolving each name as the
// loader does. attach.cpp calls working_families(); hook_families_static.cpp is the version for static
// programs.
#include "firehose/watch/hooks/allocator_check.hpp"
#include "firehose/watch/hooks/hook_families.hpp"
#include "firehose/watch/hooks/hooks_object.hpp"
#include "firehose/watch/hooks/libc_chunks.hpp"
#include "firehose/watch/hooks/real_calls.hpp"

#include <dlfcn.h>
#include <link.h>

namespace hydrant::hooks {
namespace {

template <typename Function>
void* address_of(Function* function) {
  return reinterpret_cast<void*>(reinterpret_cast<uintptr_t>(function));
}

link_map* object_of(void* address) {
  Dl_info info;
  void* object = nullptr;
  if (dladdr1(address, &info, &object, RTLD_DL_LINKMAP) == 0) return nullptr;
  return static_cast<link_map*>(object);
}

// A position-dependent program that takes a function's address has its own entry for it in the PLT, which
// leads to the first real definition.
bool is_entry_of_program(void* address) {
  Dl_info info;
  void* entry = nullptr;
  if (dladdr1(address, &info, &entry, RTLD_DL_SYMENT) == 0 || entry == nullptr) return false;
  return static_cast<const ElfW(Sym)*>(entry)->st_shndx == SHN_UNDEF;
}

// True if this object of the process defines the name.
bool defines(const link_map* object, const char* name) {
  void* handle = real_loader.dlopen(object->l_name, RTLD_LAZY | RTLD_NOLOAD);
  if (handle == nullptr) {  // the vDSO, which defines none of these
    dlerror();              // clears the error, which the program would find
    return false;
  }
  void* found = dlsym(handle, name);  // in the object or in its dependencies
  const bool is_there = found != nullptr && object_of(found) == object;
  real_loader.dlclose(handle);
  return is_there;
}

// True if no object between the program and this library defines the name.
bool is_first_after_program(const char* name) {
  const link_map* ours = object_of(&hydrant_hooks_object);
  const link_map* object = ours;
  while (object != nullptr && object->l_prev != nullptr) object = object->l_prev;
  if (object == nullptr || object == ours) return false;
  for (object = object->l_next; object != ours; object = object->l_next) {
    if (object == nullptr) return false;
    if (defines(object, name)) return false;
  }
  return true;
}

bool resolves_to_us(const char* name, void* hook) {
  void* first = dlsym(RTLD_DEFAULT, name);
  if (first == hook) return true;
  return first != nullptr && is_entry_of_program(first) && is_first_after_program(name);
}

// Looks up the names of a family; found() is 0 if one of them does not resolve to its hook.
class Search {
 public:
  explicit Search(uint32_t family) : family_(family) {}
  template <typename Function>
  void look(const char* name, Function* hook) {
    if (!resolves_to_us(name, address_of(hook))) family_ = 0;
  }
  uint32_t found() const { return family_; }

 private:
  uint32_t family_;
};

#define HYDRANT_LOOK(name, result, parameters) search.look(#name, hook_##name);

uint32_t map_family() {
  Search search(HYDRANT_HOOKS_MAP);
  HYDRANT_HOOKED_MAP_CALLS(HYDRANT_LOOK)
  search.look("mmap64", hook_mmap);
  return search.found();
}

// An allocator other than libc's may also come before the hooks: what counts is how it maps.
uint32_t malloc_family(bool maps_are_hooked, const char** fault) {
  Search search(HYDRANT_HOOKS_MALLOC);
  HYDRANT_HOOKED_MALLOC_CALLS(HYDRANT_LOOK)
  search.look("free_sized", hook_free_sized);
  search.look("free_aligned_sized", hook_free_aligned_sized);
  if (search.found() != 0 && malloc_is_libcs()) {
    *fault = fault_of_libc_chunks();
    return *fault == nullptr ? HYDRANT_HOOKS_MALLOC : 0;
  }
  // Names that the other allocator lacks still reach the hooks: its blocks are not libc's.
  __atomic_store_n(&libc_heap.readable, uint32_t{0}, __ATOMIC_RELEASE);
  const auto allocate = reinterpret_cast<void* (*)(size_t)>(dlsym(RTLD_DEFAULT, "malloc"));
  const auto release = reinterpret_cast<void (*)(void*)>(dlsym(RTLD_DEFAULT, "free"));
  if (!maps_are_hooked || allocate == nullptr || release == nullptr) return 0;
  *fault = fault_of_allocator(allocate, release);
  return *fault == nullptr ? HYDRANT_HOOKS_MALLOC : 0;
}

uint32_t thread_family() {
  Search search(HYDRANT_HOOKS_THREADS);
  HYDRANT_HOOKED_THREAD_CALLS(HYDRANT_LOOK)
  return search.found();
}

uint32_t file_family() {
  Search search(HYDRANT_HOOKS_FILES);
  HYDRANT_HOOKED_FILE_CALLS(HYDRANT_LOOK)
  search.look("ftruncate64", hook_ftruncate);
  search.look("truncate64", hook_truncate);
  search.look("fallocate64", hook_fallocate);
  return search.found();
}

uint32_t loader_family() {
  Search search(HYDRANT_HOOKS_LOADER);
  HYDRANT_HOOKED_LOADER_CALLS(HYDRANT_LOOK)
  return search.found();
}

#undef HYDRANT_LOOK

}  // namespace

uint32_t working_families(const char** malloc_fault) {
  const uint32_t map = map_family();
  // A program that refers to the object may have a copy of it (copy relocation), which the hooks would not
  // read.
  if (map != 0 && dlsym(RTLD_DEFAULT, "hydrant_hooks_1") != &hydrant_hooks_object) return 0;
  return map | malloc_family(map != 0, malloc_fault) | thread_family() | file_family() |
         loader_family();
}

}  // namespace hydrant::hooks
