// Finds the main program's writable data in its ELF program headers, which the auxiliary vector names. The
// monitor calls it once, when it starts (monitor.cpp).
#include "firehose/watch/static_memory.hpp"

#include <algorithm>
#include <elf.h>
#include <link.h>
#include <sys/auxv.h>
#include <unistd.h>

namespace hydrant {

MemoryRange find_static_memory() noexcept {
  // Reads the auxiliary vector: dl_iterate_phdr() would take the loader's lock.
  const auto at = static_cast<uintptr_t>(getauxval(AT_PHDR));
  const auto count = static_cast<size_t>(getauxval(AT_PHNUM));
  if (at == 0 || getauxval(AT_PHENT) != sizeof(ElfW(Phdr))) return {};
  const auto* headers = reinterpret_cast<const ElfW(Phdr)*>(at);
  uintptr_t bias = 0;
  uintptr_t read_only_end = 0;
  const ElfW(Phdr)* data = nullptr;
  for (size_t i = 0; i < count; ++i) {
    const ElfW(Phdr)& header = headers[i];
    if (header.p_type == PT_PHDR) bias = at - header.p_vaddr;
    if (header.p_type == PT_GNU_RELRO) read_only_end = header.p_vaddr + header.p_memsz;
    if (header.p_type == PT_LOAD && (header.p_flags & PF_W) != 0) data = &header;
  }
  if (data == nullptr) return {};
  const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const uintptr_t begin = std::max<uintptr_t>(data->p_vaddr, read_only_end) / page * page;
  const uintptr_t end = (data->p_vaddr + data->p_memsz + page - 1) / page * page;
  if (end <= begin) return {};
  return {bias + begin, end - begin};
}

}  // namespace hydrant
