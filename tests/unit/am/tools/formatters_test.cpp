// Texts of transfers, with stand-ins for gasnetex.h's declarations.
#include <cstddef>
#include <cstdint>

using gex_DT_t = uint32_t;
using gex_OP_t = uint32_t;
using gex_TI_t = unsigned;
struct Memvec {
  void* gex_addr;
  size_t gex_len;
};
enum : uint32_t {
  GEX_DT_I32 = 1,
  GEX_DT_U32 = 2,
  GEX_DT_I64 = 4,
  GEX_DT_U64 = 8,
  GEX_DT_FLT = 16,
  GEX_DT_DBL = 32,
  GEX_DT_USER = 64,
  GEX_OP_AND = 1u << 0,
  GEX_OP_OR = 1u << 1,
  GEX_OP_XOR = 1u << 2,
  GEX_OP_ADD = 1u << 3,
  GEX_OP_SUB = 1u << 4,
  GEX_OP_MULT = 1u << 5,
  GEX_OP_MIN = 1u << 6,
  GEX_OP_MAX = 1u << 7,
  GEX_OP_INC = 1u << 8,
  GEX_OP_DEC = 1u << 9,
  GEX_OP_SET = 1u << 10,
  GEX_OP_CAS = 1u << 11,
  GEX_OP_FAND = 1u << 12,
  GEX_OP_FOR = 1u << 13,
  GEX_OP_FXOR = 1u << 14,
  GEX_OP_FADD = 1u << 15,
  GEX_OP_FSUB = 1u << 16,
  GEX_OP_FMULT = 1u << 17,
  GEX_OP_FMIN = 1u << 18,
  GEX_OP_FMAX = 1u << 19,
  GEX_OP_FINC = 1u << 20,
  GEX_OP_FDEC = 1u << 21,
  GEX_OP_SWAP = 1u << 22,
  GEX_OP_FCAS = 1u << 23,
  GEX_OP_GET = 1u << 24,
  GEX_OP_USER = 1u << 25,
  GEX_OP_USER_NC = 1u << 26,
  GEX_TI_SRCRANK = 1,
  GEX_TI_EP = 2,
  GEX_TI_ENTRY = 4,
  GEX_TI_IS_REQ = 8,
  GEX_TI_IS_LONG = 16,
};
#define _INCLUDED_GASNETEX_H
#include <hydrant/gasnet/formatters.h>

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace {

template <typename Format>
std::string bits(Format format, uint32_t value) {
  std::vector<char> text(format(nullptr, value), 'x');
  EXPECT_EQ(format(text.data(), value), text.size());
  EXPECT_EQ(text.back(), '\0');
  return text.data();
}

// Returns the text after a check of its promised size.
std::string checked(const std::vector<char>& buffer) {
  const std::string text = buffer.data();
  EXPECT_LT(text.size(), buffer.size());
  return text;
}

TEST(Formatters, Sets) {
  EXPECT_EQ(bits(gasnett_format_dt, 0), "0");
  EXPECT_EQ(bits(gasnett_format_dt, GEX_DT_I32 | GEX_DT_USER), "GEX_DT_I32|GEX_DT_USER");
  EXPECT_EQ(bits(gasnett_format_dt, GEX_DT_FLT | 0x8000), "GEX_DT_FLT|0x8000");
  EXPECT_EQ(bits(gasnett_format_dt, 0x100), "0x100");
  EXPECT_EQ(bits(gasnett_format_op, GEX_OP_FCAS | GEX_OP_OR), "GEX_OP_OR|GEX_OP_FCAS");
  EXPECT_EQ(bits(gasnett_format_ti, GEX_TI_EP), "GEX_TI_EP");
}

TEST(Formatters, VectorsShowTheirTotals) {
  char memory[100];
  const Memvec list[] = {{memory + 10, 20}, {memory + 50, 5}};
  std::vector<char> buffer(gasnett_format_memveclist_bufsz(2), 'x');
  const auto all = gasnett_format_memveclist(buffer.data(), 2, list);
  EXPECT_EQ(all.totalsz, 25u);
  EXPECT_EQ(all.minsz, 5u);
  EXPECT_EQ(all.maxsz, 20u);
  EXPECT_EQ(all.minaddr, memory + 10);
  EXPECT_EQ(all.maxaddr, memory + 54);
  EXPECT_NE(checked(buffer).find("2 blocks of 5..20 bytes, total=25"), std::string::npos);
  EXPECT_EQ(gasnett_format_memveclist(buffer.data(), 0, nullptr).totalsz, 0u);
}

TEST(Formatters, LargestValuesFit) {
  void* const top = reinterpret_cast<void*>(UINTPTR_MAX - 1);
  const std::vector<Memvec> list(100, Memvec{top, SIZE_MAX});
  std::vector<char> buffer(gasnett_format_putvgetv_bufsz(100, 100), 'x');
  (void)gasnett_format_putvgetv(buffer.data(), top, UINT32_MAX, 100, list.data(), 100, list.data());
  EXPECT_EQ(checked(buffer).back(), ']') << "nothing is cut";
  const std::vector<ptrdiff_t> strides(10, PTRDIFF_MIN);
  const std::vector<size_t> counts(10, SIZE_MAX);
  buffer.assign(gasnett_format_putsgets_bufsz(10), 'x');
  (void)gasnett_format_putsgets(buffer.data(), nullptr, top, UINT32_MAX, top, strides.data(), top,
                                strides.data(), SIZE_MAX, counts.data(), 10);
  EXPECT_EQ(checked(buffer).back(), ']');
}

TEST(Formatters, TransfersReturnTheirBytes) {
  char memory[64];
  const Memvec vectors[] = {{memory, 3}, {memory + 8, 4}};
  std::vector<char> buffer(gasnett_format_putvgetv_bufsz(2, 1), 'x');
  EXPECT_EQ(gasnett_format_putvgetv(buffer.data(), nullptr, 5, 2, vectors, 1, vectors), 7u);
  EXPECT_NE(checked(buffer).find(",5) moves 7 bytes; dst: 2 blocks"), std::string::npos);

  void* const addresses[] = {memory, memory + 8, memory + 16};
  buffer.assign(gasnett_format_putigeti_bufsz(3, 1), 'x');
  EXPECT_EQ(gasnett_format_putigeti(buffer.data(), nullptr, 1, 3, addresses, 8, 1, addresses, 24),
            24u);
  EXPECT_NE(checked(buffer).find("; src: 1 blocks of 24..24 bytes"), std::string::npos);
  buffer.assign(gasnett_format_addrlist_bufsz(3), 'x');
  EXPECT_EQ(gasnett_format_addrlist(buffer.data(), 3, addresses, 8).totalsz, 24u);

  const ptrdiff_t strides[] = {8, -64};
  const size_t count[] = {4, 2};
  buffer.assign(gasnett_format_putsgets_bufsz(2), 'x');
  EXPECT_EQ(gasnett_format_putsgets(buffer.data(), nullptr, nullptr, 0, memory, strides, memory,
                                    strides, 8, count, 2),
            64u);
  EXPECT_NE(checked(buffer).find("strides=[8, -64]"), std::string::npos);
  buffer.assign(gasnett_format_strides_bufsz(2), 'x');
  gasnett_format_strides(buffer.data(), 2, strides);
  EXPECT_EQ(checked(buffer), "[8, -64]");
}

}  // namespace
