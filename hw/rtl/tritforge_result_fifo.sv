// Results on their way to the output stream: a FIFO in distributed RAM with a registered AXI4-Stream output.
//
// The writer never asks whether there is room: it counts credits (one per beat that it may still write, given back by
// pop_o), so that nothing upstream has to stop in the middle of a computation.
module tritforge_result_fifo #(
  // Beats; a power of two.
  parameter int Depth = 32
) (
  input  logic        clk_i,
  input  logic        rst_ni,

  input  logic        wr_valid_i,
  input  logic [63:0] wr_data_i,
  input  logic        wr_last_i,

  output logic [63:0] m_axis_tdata_o,
  output logic        m_axis_tvalid_o,
  input  logic        m_axis_tready_i,
  output logic        m_axis_tlast_o,

  // A beat was taken out of the memory: one credit back. (The output register is room of its own.)
  output logic        pop_o
);

  localparam int PtrWidth = $clog2(Depth);

  // Not reset: a reset would keep it from being distributed RAM.
  logic [64:0]         mem [0:Depth-1];
  // One bit more than the address, so that full and empty differ.
  logic [PtrWidth:0]   wr_ptr_q;
  logic [PtrWidth:0]   rd_ptr_q;
  logic                empty;
  logic                valid_q;
  logic [64:0]         out_q;

  assign empty = wr_ptr_q == rd_ptr_q;
  assign pop_o = !empty && (!valid_q || m_axis_tready_i);

  always_ff @(posedge clk_i) begin
    if (wr_valid_i) begin
      mem[wr_ptr_q[PtrWidth-1:0]] <= {wr_last_i, wr_data_i};
    end
    if (pop_o) begin
      out_q <= mem[rd_ptr_q[PtrWidth-1:0]];
    end
  end

  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      wr_ptr_q <= '0;
      rd_ptr_q <= '0;
      valid_q  <= 1'b0;
    end else begin
      if (wr_valid_i) begin
        wr_ptr_q <= wr_ptr_q + 1'b1;
      end
      if (pop_o) begin
        rd_ptr_q <= rd_ptr_q + 1'b1;
        valid_q  <= 1'b1;
      end else if (m_axis_tready_i) begin
        valid_q <= 1'b0;
      end
    end
  end

  assign m_axis_tvalid_o = valid_q;
  assign m_axis_tdata_o  = out_q[63:0];
  assign m_axis_tlast_o  = out_q[64];

`ifdef TRITFORGE_SVA
  logic [PtrWidth:0] level;
  assign level = wr_ptr_q - rd_ptr_q;

  // The writer's credits keep it from ever writing into a full memory.
  a_no_overflow : assert property (@(posedge clk_i) disable iff (!rst_ni)
    wr_valid_i |-> level != Depth[PtrWidth:0]);
  // AXI4-Stream: once valid, a beat stays as it is until it is taken.
  a_valid_stays : assert property (@(posedge clk_i) disable iff (!rst_ni)
    m_axis_tvalid_o && !m_axis_tready_i |=> m_axis_tvalid_o);
  a_data_stays : assert property (@(posedge clk_i) disable iff (!rst_ni)
    m_axis_tvalid_o && !m_axis_tready_i |=> $stable(out_q));
`endif

endmodule
