// Memory kinds without a class of devices: constants, refusals, and queries of host memory.
#include "tests/unit/am/job_fixture.hpp"

#include <cstring>
#include <gasnet_mk.h>

namespace hydrant::test {
namespace {

#if defined(GASNET_HAVE_MK_CLASS_CUDA_UVA) || defined(GASNET_HAVE_MK_CLASS_HIP) || \
    defined(GASNET_HAVE_MK_CLASS_ZE) || defined(GASNET_HAVE_MK_CLASS_MULTIPLE)
#error a class of devices is announced
#endif
static_assert(GASNET_HAVE_MK_CLASS_HOST == 1);
// The numbers are GASNet's, for bindings of other languages.
static_assert(GEX_MK_CLASS_HOST == 0 && GEX_MK_CLASS_CUDA_UVA == 1 && GEX_MK_CLASS_HIP == 2 &&
              GEX_MK_CLASS_ZE == 3);
static_assert(sizeof(gex_MK_Create_args_t) == 40);

class MemoryKinds : public JobFixture {
 protected:
  MemoryKinds() { std::memset(&args, 0, sizeof args); }
  int create(gex_MK_Class_t kind_class) {
    args.gex_class = kind_class;
    return gex_MK_Create(&kind, &job().client, &args, 0);
  }
  gex_MK_Create_args_t args;
  gex_MK_t kind = GEX_MK_INVALID;
};

TEST_F(MemoryKinds, NoDeviceIsSupported) {
  args.gex_args.gex_class_cuda_uva.gex_CUdevice = 0;
  EXPECT_EQ(create(GEX_MK_CLASS_CUDA_UVA), GASNET_ERR_BAD_ARG);
  EXPECT_NE(std::strstr(last_error_text(), "no support for GEX_MK_CLASS_CUDA_UVA"), nullptr);
  args.gex_args.gex_class_hip.gex_hipDevice = 0;
  EXPECT_EQ(create(GEX_MK_CLASS_HIP), GASNET_ERR_BAD_ARG);
  EXPECT_NE(std::strstr(last_error_text(), "no support for GEX_MK_CLASS_HIP"), nullptr);
  args.gex_args.gex_class_ze = {nullptr, nullptr, 0};
  EXPECT_EQ(create(GEX_MK_CLASS_ZE), GASNET_ERR_BAD_ARG);
  EXPECT_NE(std::strstr(last_error_text(), "no support for GEX_MK_CLASS_ZE"), nullptr);
  EXPECT_EQ(kind, GEX_MK_INVALID);
}

TEST_F(MemoryKinds, WrongArgumentsAreRefused) {
  EXPECT_EQ(create(GEX_MK_CLASS_HOST), GASNET_ERR_BAD_ARG);
  EXPECT_NE(std::strstr(last_error_text(), "GEX_MK_HOST"), nullptr);
  // A value that C programs can pass.
  const unsigned no_class = 4;
  std::memcpy(&args.gex_class, &no_class, sizeof no_class);
  EXPECT_EQ(gex_MK_Create(&kind, &job().client, &args, 0), GASNET_ERR_BAD_ARG);
  EXPECT_NE(std::strstr(last_error_text(), "4 is no class"), nullptr);
  args.gex_class = GEX_MK_CLASS_HIP;
  EXPECT_EQ(gex_MK_Create(&kind, &job().client, &args, 1), GASNET_ERR_BAD_ARG);
  EXPECT_EQ(gex_MK_Create(&kind, &job().client, nullptr, 0), GASNET_ERR_BAD_ARG);
  EXPECT_EQ(gex_MK_Create(nullptr, &job().client, &args, 0), GASNET_ERR_BAD_ARG);
  EXPECT_EQ(gex_MK_Create(&kind, GEX_CLIENT_INVALID, &args, 0), GASNET_ERR_BAD_ARG);
  args.gex_flags = 1;
  EXPECT_EQ(create(GEX_MK_CLASS_HIP), GASNET_ERR_BAD_ARG);
  EXPECT_EQ(kind, GEX_MK_INVALID);
  gex_Segment_t segment = GEX_SEGMENT_INVALID;
  EXPECT_EQ(gex_Segment_Create(&segment, &job().client, nullptr, 4096, GEX_MK_INVALID, 0),
            GASNET_ERR_BAD_ARG);
  job().state = JobState::kNew;
  EXPECT_EQ(create(GEX_MK_CLASS_HIP), GASNET_ERR_NOT_INIT);
}

TEST_F(MemoryKinds, HostMemoryWasNotCreated) {
  EXPECT_EQ(gex_MK_QueryClass(GEX_MK_HOST), GEX_MK_CLASS_HOST);
  EXPECT_DEATH(gex_MK_Destroy(GEX_MK_HOST, 0), "gex_MK_Destroy: the argument is GEX_MK_HOST");
  EXPECT_DEATH(gex_MK_Destroy(GEX_MK_INVALID, 0), "gex_MK_Destroy: the argument is GEX_MK_INVALID");
  EXPECT_DEATH((void)gex_MK_QueryClass(GEX_MK_INVALID),
               "QueryClass: the argument is GEX_MK_INVALID");
  EXPECT_DEATH((void)gex_MK_QueryFlags(GEX_MK_HOST), "QueryFlags: the argument is GEX_MK_HOST");
  EXPECT_DEATH((void)gex_MK_QueryClient(GEX_MK_HOST), "QueryClient: the argument is GEX_MK_HOST");
  EXPECT_DEATH((void)gex_MK_QueryCData(GEX_MK_HOST), "QueryCData: the argument is GEX_MK_HOST");
  EXPECT_DEATH(gex_MK_SetCData(reinterpret_cast<gex_MK_t>(uintptr_t{4096}), nullptr),
               "SetCData: the argument is a value that is no memory kind");
}

}  // namespace
}  // namespace hydrant::test
