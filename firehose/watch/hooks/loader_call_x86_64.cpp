// Calls the loader with a return address inside the caller's own code: that of a `ret` instruction there,
// which returns to this file. Nothing is patched. It is not used with shadow stacks, which would report an
// attack. Debuggers that stop inside the function show one frame of the caller wrongly.
#include "firehose/watch/hooks/loader_call.hpp"

#include <cstddef>
#include <link.h>

// (return site, function, a, b, c): the stack is as after a `call` when the function begins.
extern "C" uintptr_t hydrant_hooks_call_returning_at(const void* site,
                                                     hydrant::hooks::LoaderCall function,
                                                     uintptr_t a, uintptr_t b, uintptr_t c)
    __attribute__((visibility("hidden")));
__asm__(R"(
    .pushsection .text
    .globl hydrant_hooks_call_returning_at
    .hidden hydrant_hooks_call_returning_at
    .type hydrant_hooks_call_returning_at, @function
hydrant_hooks_call_returning_at:
    .cfi_startproc
    pushq %rbp
    .cfi_def_cfa_offset 16
    .cfi_offset %rbp, -16
    movq %rsp, %rbp
    .cfi_def_cfa_register %rbp
    subq $8, %rsp
    leaq 1f(%rip), %rax
    pushq %rax
    pushq %rdi
    movq %rsi, %rax
    movq %rdx, %rdi
    movq %rcx, %rsi
    movq %r8, %rdx
    jmp *%rax
1:  leave
    .cfi_def_cfa %rsp, 8
    ret
    .cfi_endproc
    .size hydrant_hooks_call_returning_at, . - hydrant_hooks_call_returning_at
    .popsection
)");

namespace hydrant::hooks {
namespace {

// The code segment that contains an address.
struct Code {
  const unsigned char* address = nullptr;
  const unsigned char* begin = nullptr;
  const unsigned char* end = nullptr;
};

int find_code(dl_phdr_info* object, size_t /*size*/, void* wanted) {
  auto* code = static_cast<Code*>(wanted);
  for (ElfW(Half) i = 0; i < object->dlpi_phnum; ++i) {
    const ElfW(Phdr)& segment = object->dlpi_phdr[i];
    const unsigned needed = PF_X | PF_R;
    if (segment.p_type != PT_LOAD || (segment.p_flags & needed) != needed) continue;
    const auto* begin = reinterpret_cast<const unsigned char*>(object->dlpi_addr + segment.p_vaddr);
    if (code->address < begin || code->address >= begin + segment.p_memsz) continue;
    code->begin = begin;
    code->end = begin + segment.p_memsz;
    return 1;
  }
  return 0;
}

// Finds a `ret` instruction in the caller's code: any byte of that value, because a return to it executes it.
const unsigned char* find_return(const void* caller) {
  constexpr unsigned char kReturn = 0xc3;
  Code code = {.address = static_cast<const unsigned char*>(caller)};
  dl_iterate_phdr(find_code, &code);
  for (const auto* at = code.address; at < code.end; ++at) {
    if (*at == kReturn) return at;
  }
  for (const auto* at = code.begin; at < code.address && code.begin != nullptr; ++at) {
    if (*at == kReturn) return at;
  }
  return nullptr;
}

// The instruction leaves the variable at 0 if there is no shadow stack.
bool has_shadow_stack() {
  uintptr_t pointer = 0;
  __asm__ volatile("rdsspq %0" : "+r"(pointer));
  return pointer != 0;
}

}  // namespace

uintptr_t call_on_behalf(const void* caller, LoaderCall function, uintptr_t a, uintptr_t b,
                         uintptr_t c) {
  const unsigned char* site = has_shadow_stack() ? nullptr : find_return(caller);
  if (site == nullptr) return function(a, b, c);
  return hydrant_hooks_call_returning_at(site, function, a, b, c);
}

}  // namespace hydrant::hooks
