// Finds the main program's writable data in its ELF program headers, which the auxiliary vector names. The
// monitor calls it once, when it starts (monitor.cpp).
#include "firehose/watch/static_memory.hpp"

#include <algorithm>
#include <elf.h>
#include <link.h>
#include <sys/auxv.h>
#include <unistd.h>

namespace hydrant {

namespace {

// The difference between addresses here and those in the file. Programs linked with -static-pie have no
// PT_PHDR: the file's first page, which holds the headers, is mapped in front of the others.
uintptr_t load_bias(uintptr_t headers_at, const ElfW(Phdr) * headers, size_t count,
                    uintptr_t page) noexcept {
  for (size_t i = 0; i < count; ++i) {
    if (headers[i].p_type == PT_PHDR) return headers_at - headers[i].p_vaddr;
  }
  for (size_t i = 0; i < count; ++i) {
    if (headers[i].p_type == PT_LOAD && headers[i].p_offset == 0)
      return headers_at / page * page - headers[i].p_vaddr;
  }
  return 0;
}

}  // namespace

MemoryRange find_static_memory() noexcept {
  // Reads the auxiliary vector: dl_iterate_phdr() would take the loader's lock.
  const auto at = static_cast<uintptr_t>(getauxval(AT_PHDR));
  const auto count = static_cast<size_t>(getauxval(AT_PHNUM));
  if (at == 0 || getauxval(AT_PHENT) != sizeof(ElfW(Phdr))) return {};
  const auto* headers = reinterpret_cast<const ElfW(Phdr)*>(at);
  const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  uintptr_t read_only_end = 0;
  const ElfW(Phdr)* data = nullptr;
  for (size_t i = 0; i < count; ++i) {
    const ElfW(Phdr)& header = headers[i];
    if (header.p_type == PT_GNU_RELRO) read_only_end = header.p_vaddr + header.p_memsz;
    if (header.p_type == PT_LOAD && (header.p_flags & PF_W) != 0) data = &header;
  }
  if (data == nullptr) return {};
  const uintptr_t begin = std::max<uintptr_t>(data->p_vaddr, read_only_end) / page * page;
  const uintptr_t end = (data->p_vaddr + data->p_memsz + page - 1) / page * page;
  if (end <= begin) return {};
  return {load_bias(at, headers, count, page) + begin, end - begin};
}

}  // namespace hydrant
