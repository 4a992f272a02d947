// The user logic as the Verilated design: hw/rtl/tritforge_shell.v, as Vivado gets it.
#include "Vtritforge_shell.h"
#include "Vtritforge_shell___024root.h"
#include "fabric.h"
#include "verilated.h"
#if VM_TRACE
#include "verilated_vcd_c.h"
#endif

namespace tritforge {

namespace {
enum class Access { kNone, kRead, kWrite, kReadAnswer, kWriteAnswer };
}

struct Fabric::State {
  VerilatedContext context;
  Vtritforge_shell top{&context, "shell"};
  Access access = Access::kNone;
  uint32_t answer = 0;
#if VM_TRACE
  std::unique_ptr<VerilatedVcdC> trace;
#endif
};

Fabric::Fabric(const tritforge_rtl_options &) : state_(std::make_unique<State>()) {}

Fabric::~Fabric() {
  waves(nullptr);
  state_->top.final();
}

const char *Fabric::kind() { return "rtl"; }

void Fabric::reset() {
  Streams none;
  state_->top.aresetn = 0;
  state_->top.s_axi_awvalid = state_->top.s_axi_wvalid = state_->top.s_axi_arvalid = 0;
  state_->top.s_axi_bready = state_->top.s_axi_rready = 1;
  for (int i = 0; i < 4; i++) clock(none);
  state_->top.aresetn = 1;
}

void Fabric::clock(Streams &streams) {
  Vtritforge_shell &top = state_->top;
  top.s_axis_mv0_tdata = streams.in_data[0];
  top.s_axis_mv1_tdata = streams.in_data[1];
  top.s_axis_at0_tdata = streams.in_data[2];
  top.s_axis_at1_tdata = streams.in_data[3];
  top.s_axis_mv0_tvalid = streams.in_valid[0];
  top.s_axis_mv1_tvalid = streams.in_valid[1];
  top.s_axis_at0_tvalid = streams.in_valid[2];
  top.s_axis_at1_tvalid = streams.in_valid[3];
  top.s_axis_mv0_tlast = streams.in_last[0];
  top.s_axis_mv1_tlast = streams.in_last[1];
  top.s_axis_at0_tlast = streams.in_last[2];
  top.s_axis_at1_tlast = streams.in_last[3];
  top.m_axis_mv0_tready = streams.out_ready[0];
  top.m_axis_mv1_tready = streams.out_ready[1];
  top.m_axis_at0_tready = streams.out_ready[2];
  top.m_axis_at1_tready = streams.out_ready[3];
  top.aclk = 0;
  top.eval();
#if VM_TRACE
  if (state_->trace) state_->trace->dump(state_->context.time());
#endif
  streams.in_ready[0] = top.s_axis_mv0_tready;
  streams.in_ready[1] = top.s_axis_mv1_tready;
  streams.in_ready[2] = top.s_axis_at0_tready;
  streams.in_ready[3] = top.s_axis_at1_tready;
  streams.out_valid[0] = top.m_axis_mv0_tvalid;
  streams.out_valid[1] = top.m_axis_mv1_tvalid;
  streams.out_valid[2] = top.m_axis_at0_tvalid;
  streams.out_valid[3] = top.m_axis_at1_tvalid;
  streams.out_last[0] = top.m_axis_mv0_tlast;
  streams.out_last[1] = top.m_axis_mv1_tlast;
  streams.out_last[2] = top.m_axis_at0_tlast;
  streams.out_last[3] = top.m_axis_at1_tlast;
  streams.out_data[0] = top.m_axis_mv0_tdata;
  streams.out_data[1] = top.m_axis_mv1_tdata;
  streams.out_data[2] = top.m_axis_at0_tdata;
  streams.out_data[3] = top.m_axis_at1_tdata;
  const bool read_taken = top.s_axi_arvalid && top.s_axi_arready;
  const bool write_taken = top.s_axi_awvalid && top.s_axi_awready;
  const bool read_answered = top.s_axi_rvalid;
  const bool write_answered = top.s_axi_bvalid;
  const uint32_t data = top.s_axi_rdata;
  state_->context.timeInc(4);
  top.aclk = 1;
  top.eval();
#if VM_TRACE
  if (state_->trace) state_->trace->dump(state_->context.time());
#endif
  state_->context.timeInc(4);
  if (state_->access == Access::kNone) return;
  if (read_taken) {
    top.s_axi_arvalid = 0;
    state_->access = Access::kReadAnswer;
  } else if (write_taken) {
    top.s_axi_awvalid = top.s_axi_wvalid = 0;
    state_->access = Access::kWriteAnswer;
  } else if (state_->access == Access::kReadAnswer && read_answered) {
    state_->answer = data;
    state_->access = Access::kNone;
  } else if (state_->access == Access::kWriteAnswer && write_answered) {
    state_->answer = 0;
    state_->access = Access::kNone;
  }
}

void Fabric::begin_read(uint32_t offset) {
  state_->top.s_axi_araddr = static_cast<SData>(offset);
  state_->top.s_axi_arvalid = 1;
  state_->access = Access::kRead;
}

void Fabric::begin_write(uint32_t offset, uint32_t value) {
  state_->top.s_axi_awaddr = static_cast<SData>(offset);
  state_->top.s_axi_wdata = value;
  state_->top.s_axi_wstrb = 0xF;
  state_->top.s_axi_awvalid = state_->top.s_axi_wvalid = 1;
  state_->access = Access::kWrite;
}

bool Fabric::finished(uint32_t *value) {
  *value = state_->answer;
  return state_->access == Access::kNone;
}

// The clock counter is the only register that runs while nothing happens.
void Fabric::skip(uint64_t cycles) {
  state_->top.rootp->tritforge_shell__DOT__u_top__DOT__u_control__DOT__cycles_q += cycles;
  state_->context.timeInc(8 * cycles);
}

uint64_t Fabric::leap(const Supply (&)[kEngines], uint64_t, uint64_t (&)[kEngines]) { return 0; }

bool Fabric::waves(const char *path) {
#if VM_TRACE
  if (state_->trace) {
    state_->trace->close();
    state_->trace.reset();
  }
  if (path != nullptr) {
    state_->context.traceEverOn(true);
    state_->trace = std::make_unique<VerilatedVcdC>();
    state_->top.trace(state_->trace.get(), 99);
    state_->trace->open(path);
    return state_->trace->isOpen();
  }
  return true;
#else
  return path == nullptr;
#endif
}

}  // namespace tritforge
