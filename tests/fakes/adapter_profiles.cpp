// The profiles. Where a comment names a driver, the value is that of its source: "kernel" is
// drivers/infiniband of Linux, a library is a provider of rdma-core. Other sources are `ibv_devinfo -v` of
// such an adapter, in the report that is named. "assumed": firmware decides, and the value is a careful one.
// Numbers of vectors, rates and LIDs are those of some machine. Facts that no comment mentions are those of
// Device.
#include "tests/fakes/adapter_profiles.hpp"

#include <climits>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace hydrant::fake_verbs {
namespace {

// Codes of link speeds, per lane, and of four lanes.
constexpr uint8_t kSdr = 1;
constexpr uint8_t kFdr = 16;
constexpr uint8_t kEdr = 32;
constexpr uint8_t kHdr = 64;
constexpr uint8_t kLanes1 = 1;
constexpr uint8_t kLanes4 = 2;

Gid link_local_gid(ibv_gid_type type) {
  Gid made;
  made.type = type;
  made.gid.raw[0] = 0xfe;
  made.gid.raw[1] = 0x80;
  made.gid.raw[15] = 1;
  return made;
}

// An InfiniBand port of the default subnet.
std::vector<Gid> infiniband_gids() { return {link_local_gid(IBV_GID_TYPE_IB)}; }

// kernel core/roce_gid_mgmt.c: each address of the network interface, link-local first, in each version
// that the device has.
std::vector<Gid> gids_of_both_versions() {
  Gid version_1 = ipv4_gid(1);
  version_1.type = IBV_GID_TYPE_ROCE_V1;
  return {link_local_gid(IBV_GID_TYPE_ROCE_V1), link_local_gid(IBV_GID_TYPE_ROCE_V2), version_1,
          ipv4_gid(1)};
}
std::vector<Gid> gids_of_version_2() { return {link_local_gid(IBV_GID_TYPE_ROCE_V2), ipv4_gid(1)}; }

// Limits: openucx/ucx#10317 (ConnectX-6 Lx), ofiwg/libfabric#8256 (ConnectX-5), openucx/ucx#10430
// (vectors, longest message). dma-buf: libmlx5 mlx5_reg_dmabuf_mr(). LIDs are those of some subnet.
// Inline: assumed; libmlx5 mlx5_calc_send_wqe() refuses what the longest work request, which firmware
// decides, has no room for.
Device mlx5_infiniband() {
  return {.max_mr_size = UINT64_MAX,
          .max_mr = 16'777'216,
          .odp = true,
          .implicit_odp = true,
          .vendor = 0x2c9,
          .ethernet = false,
          .lid = 5,
          .sm_lid = 1,
          .gids = infiniband_gids(),
          .speed = kHdr,
          .width = kLanes4,
          .max_message = 1 << 30,
          .max_cqe = 4'194'303,
          .max_srq_wr = 32'767,
          .max_qp_wr = 32'768,
          .max_inline = 512,
          .max_qp = 131'072,
          .max_ah = INT_MAX,
          .max_reads = 16,
          .completion_vectors = 63};
}

Device mlx5_roce() {
  Device made = mlx5_infiniband();
  made.ethernet = true;
  made.lid = made.sm_lid = 0;
  made.gids = gids_of_both_versions();
  made.speed = kEdr;
  return made;
}

// claudebarthels/infinity#5 (ConnectX-3), of whose two ports this is one. Its 128 reads as initiator are
// not modelled. No dma-buf: libmlx4 has no such call. Inline: assumed; libmlx4 create_qp_ex() refuses more
// than 1024.
Device mlx4() {
  return {.max_mr_size = UINT64_MAX,
          .max_mr = 524'032,
          .dmabuf = false,
          .vendor = 0x2c9,
          .ethernet = false,
          .lid = 5,
          .sm_lid = 1,
          .gids = infiniband_gids(),
          .speed = kFdr,
          .width = kLanes4,
          .max_message = 1 << 30,
          .max_cqe = 4'194'303,
          .max_srq_wr = 16'383,
          .max_qp_wr = 16'351,
          .max_inline = 512,
          .max_qp = 131'000,
          .max_ah = INT_MAX,
          .max_reads = 16};
}

// kernel hw/bnxt_re/ib_verbs.c bnxt_re_query_port() (longest message), bnxt_re_query_pkey(),
// bnxt_re_create_srq() (the limit itself is refused). Inline:
// libbnxt_re BNXT_RE_MAX_INLINE_SIZE. qplib_sp.c bnxt_qplib_get_dev_attr() takes the limits from firmware:
// all are assumed. So are no atomics, which need a PCIe root that routes them, and no resize of completion
// queues: libbnxt_re has the call, but only newer kernels do.
Device bnxt_re() {
  return {.max_mr_size = uint64_t{1} << 39,
          .max_mr = 65'536,
          .atomics = false,
          .vendor = 0x14e4,
          .gids = gids_of_both_versions(),
          .speed = kEdr,
          .width = kLanes4,
          .max_message = 1 << 30,
          .max_cqe = 65'535,
          .max_srq_wr = 16'383,
          .refuses_longest_srq = true,
          .max_qp_wr = 4'223,
          .max_inline = 96,
          .max_qp = 16'384,
          .max_ah = 16'384,
          .max_reads = 16,
          .completion_vectors = 8,
          .absent = {Call::kResizeCq}};
}

// deepseek-ai/3FS#192 (E810 as RoCE): limits, no atomics, no shared receive queues. Its 8 reads are those
// of the vendor's driver; kernel hw/irdma/icrdma_hw.h has more. Length of queues: kernel hw/irdma/user.h
// IRDMA_MAX_QP_WRS(). Inline and longest message: libirdma IRDMA_MAX_INLINE_DATA_SIZE,
// IRDMA_MAX_OUTBOUND_MSG_SIZE; irdma_ucreate_qp() refuses more. The LID, without a meaning on Ethernet, is
// that of kernel hw/irdma/verbs.c irdma_query_port().
Device irdma_e810() {
  return {.max_mr_size = uint64_t{1} << 45,
          .max_mr = 4'194'301,
          .atomics = false,
          .vendor = 0x8086,
          .lid = 1,
          .gids = gids_of_version_2(),
          .speed = kEdr,
          .width = kLanes4,
          .max_message = INT_MAX,
          .max_cqe = 1'048'574,
          .max_srq_wr = 0,
          .max_qp_wr = 4'063,
          .max_inline = 101,
          .max_qp = 4'092,
          .max_ah = 131'072,
          .max_reads = 8,
          .absent = {Call::kCreateSrq}};
}

// kernel hw/irdma/ig3rdma_hw.h: inline, reads; IRDMA_FEATURE_SRQ, IRDMA_FEATURE_CQ_RESIZE. Assumed: the
// length of shared receive queues, no atomics (firmware allows them), and the rest as of an E810.
Device irdma_gen3() {
  Device made = irdma_e810();
  made.max_srq_wr = 16'383;
  made.max_inline = 216;
  made.max_reads = 64;
  made.absent = {};
  return made;
}

// ofiwg/libfabric#6891 (HIP08): limits, atomics. No resize, no dma-buf: libhns has no such calls
// (hns_roce_u.c). kernel hw/hns/hns_roce_hw_v2.h: queue pairs, length of queues,
// HNS_ROCE_V2_MAX_SQ_INLINE; longest message, speed and width: hns_roce_main.c hns_roce_query_port().
// libhns get_max_inline_data() cuts what is asked for.
Device hns() {
  return {.max_mr_size = UINT64_MAX,
          .max_mr = 32'640,
          .dmabuf = false,
          .vendor = 0x19e5,
          .gids = gids_of_both_versions(),
          .speed = kSdr,
          .width = kLanes4,
          .max_message = uint32_t{1} << 31,
          .max_cqe = 65'535,
          .max_srq_wr = 16'383,
          .max_qp_wr = 32'768,
          .max_inline = 32,
          .cuts_inline = true,
          .max_qp = 4'096,
          .max_ah = INT_MAX,
          .max_reads = 128,
          .completion_vectors = 63,
          .absent = {Call::kResizeCq}};
}

// kernel hw/ionic/ionic_ibdev.c ionic_query_device(), ionic_query_port(): atomics, lengths of queues,
// reads, longest message. No resize, no shared receive queues: libionic ionic_ctx_ops. Assumed: numbers of
// objects and inline, which firmware decides (libionic ionic_v1_send_wqe_max_data()).
Device ionic() {
  return {.max_mr_size = uint64_t{1} << 36,
          .max_mr = 16'384,
          .atomics_with_processors = true,
          .vendor = 0x1dd8,
          .gids = gids_of_version_2(),
          .speed = kEdr,
          .width = kLanes4,
          .max_message = uint32_t{1} << 31,
          .max_cqe = 65'435,
          .max_srq_wr = 0,
          .max_qp_wr = 65'535,
          .max_inline = 224,
          .max_qp = 4'096,
          .max_ah = 4'096,
          .max_reads = 16,
          .completion_vectors = 8,
          .absent = {Call::kResizeCq, Call::kCreateSrq}};
}

// kernel sw/rxe/rxe_param.h. No dma-buf: librxe has no such call.
Device rxe() {
  return {.max_mr_size = UINT64_MAX,
          .max_mr = 524'286,
          .dmabuf = false,
          .vendor = 0xffffff,
          .gids = gids_of_version_2(),
          .speed = kSdr,
          .width = kLanes1,
          .max_message = 8 << 20,
          .max_cqe = 32'767,
          .max_srq_wr = 1 << 20,
          .max_qp_wr = 1 << 20,
          .max_inline = 512,
          .max_qp = (1 << 20) - 16,
          .max_ah = 32'767,
          .max_reads = 128};
}

// ---- adapters that cannot carry the transport ----

// openucx/ucx#5148 (limits, and the refusal of UD). kernel hw/qedr/verbs.c qedr_check_qp_attrs() has RC
// alone; libqedr has no address handles and no resize.
Device qedr() {
  return {.max_mr_size = uint64_t{1} << 40,
          .max_mr = 131'070,
          .dmabuf = false,
          .vendor = 0x1077,
          .gids = gids_of_both_versions(),
          .max_cqe = 8'388'480,
          .max_qp_wr = 32'767,
          .max_inline = 256,
          .max_qp = 8'568,
          .max_reads = 32,
          .datagrams = false,
          .absent = {Call::kResizeCq, Call::kCreateAh}};
}

// libmana mana_create_qp(): RC and raw packets. It has no address handles, shared receive queues or resize.
Device mana() {
  return {.vendor = 0x1414,
          .gids = gids_of_version_2(),
          .max_srq_wr = 0,
          .datagrams = false,
          .absent = {Call::kResizeCq, Call::kCreateSrq, Call::kCreateAh}};
}

// kernel hw/efa/efa_main.c: RDMA_NODE_UNSPECIFIED. libefa has UD and a protocol of its own, SRD; no RC.
Device efa() {
  return {.transport = IBV_TRANSPORT_UNSPECIFIED,
          .vendor = 0x1d0f,
          .max_srq_wr = 0,
          .connections = false,
          .absent = {Call::kResizeCq, Call::kCreateSrq}};
}

// kernel sw/siw/siw_main.c: RDMA_NODE_RNIC; siw.h: vendor. libsiw has no address handles and no resize;
// iWARP has no datagrams.
Device siw() {
  return {.transport = IBV_TRANSPORT_IWARP,
          .vendor = 0x626d74,
          .datagrams = false,
          .absent = {Call::kResizeCq, Call::kCreateAh}};
}

// kernel hw/erdma/erdma_main.c: RDMA_NODE_RNIC, but for newer devices, which can be RoCE. liberdma has no
// address handles, shared receive queues or resize; iWARP has no datagrams.
Device erdma() {
  return {.transport = IBV_TRANSPORT_IWARP,
          .vendor = 0x1ded,
          .max_srq_wr = 0,
          .datagrams = false,
          .absent = {Call::kResizeCq, Call::kCreateSrq, Call::kCreateAh}};
}

std::vector<AdapterProfile> make_profiles() {
  const char* const no_datagrams =
      "it has no datagrams (queue pairs of type UD): Operation not supported";
  std::vector<AdapterProfile> made = {
      {"mlx5_infiniband", mlx5_infiniband()},
      {"mlx5_roce", mlx5_roce()},
      {"mlx4", mlx4()},
      {"bnxt_re", bnxt_re()},
      {"irdma_e810", irdma_e810()},
      {"irdma_gen3", irdma_gen3()},
      {"hns", hns()},
      {"ionic", ionic()},
      {"rxe", rxe()},
      {"qedr", qedr(), no_datagrams},
      {"mana", mana(), no_datagrams},
      {"efa", efa(), "protocol of its own, without reliable connections (RC)"},
      {"siw", siw(), "iWARP adapter, without datagrams (UD)"},
      {"erdma", erdma(), "iWARP adapter, without datagrams (UD)"},
  };
  for (AdapterProfile& profile : made) profile.device.name = profile.name;
  return made;
}

}  // namespace

const std::vector<AdapterProfile>& adapter_profiles() {
  static const std::vector<AdapterProfile> profiles = make_profiles();
  return profiles;
}

Device adapter() {
  const char* const wanted = std::getenv("HYDRANT_TEST_ADAPTER");
  if (wanted == nullptr || *wanted == '\0') return {};
  for (const AdapterProfile& profile : adapter_profiles()) {
    if (std::strcmp(profile.name, wanted) != 0) continue;
    Device device = profile.device;
    device.name = "fake0";
    return device;
  }
  std::fprintf(stderr, "HYDRANT_TEST_ADAPTER: no profile is called '%s', but these are:", wanted);
  for (const AdapterProfile& profile : adapter_profiles())
    std::fprintf(stderr, " %s", profile.name);
  std::fputc('\n', stderr);
  std::abort();
}

}  // namespace hydrant::fake_verbs
