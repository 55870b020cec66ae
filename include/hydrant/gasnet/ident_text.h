/* hydrant/gasnet/ident_text.h - HYDRANT_IDENT(name, text) puts a text into every program that includes
 * this header in an object, exactly once, although no code refers to the text.
 */
#ifndef HYDRANT_GASNET_IDENT_TEXT_H
#define HYDRANT_GASNET_IDENT_TEXT_H

#include <hydrant/gasnet/annotations.h>

/* A COMDAT section, of which the linker keeps one copy; C has no variables of this kind. The R flag
 * protects it from --gc-sections if the toolchain supports that. The label avoids duplicates in objects
 * that are compiled together (-flto). */
#if defined(__has_attribute)
#if __has_attribute(__retain__)
#define HYDRANT_IDENT_FLAGS "aGR"
#endif
#endif
#ifndef HYDRANT_IDENT_FLAGS
#define HYDRANT_IDENT_FLAGS "aG"
#endif
/* The text may hold neither quotes nor backslashes. */
#define HYDRANT_IDENT(name, text)                                                          \
  __asm__(".ifndef .Lhydrant_ident_" #name "\n\t.pushsection .rodata.hydrant_ident_" #name \
          ",\"" HYDRANT_IDENT_FLAGS "\",%progbits,hydrant_ident_" #name                    \
          ",comdat\n.Lhydrant_ident_" #name ":\n\t.string \"" text                         \
          "\"\n\t.popsection\n\t.endif\n");

#endif
