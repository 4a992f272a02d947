# The block design: the processing system, four AXI DMAs and our shell, all in one clock domain.
#
#   PS7 M_AXI_GP0 ── control_bus ──┬─ shell s_axi        (control block)
#                                  └─ dma_* S_AXI_LITE   (four)
#   dma_* M_AXIS_MM2S ── shell s_axis_*     shell m_axis_* ── dma_* S_AXIS_S2MM
#   dma_* M_AXI_* ── bus_* ── PS7 S_AXI_HP*    (MM2S always; results and descriptors by default)
#
# With results or descriptors on the coherent port they meet in bus_acp and pass acp_port, which drives AxCACHE and
# AxUSER; the results first pass pad_*, which fills every packet to whole cache lines (acp_port.v, axis_pad32.v).
#
# All names, versions, addresses and connections are explicit: no connection automation, no automatic addresses.

proc create_tritforge_block_design {} {
    global tf
    create_bd_design $tf(design)
    create_processing_system
    create_clock_and_reset
    create_shell
    create_control_bus
    foreach dma $tf(dmas) {
        create_dma $dma
    }
    if {[llength $tf(acp_masters)] > 0} {
        create_acp_port
    }
    foreach dma $tf(dmas) {
        connect_dma_memory $dma
    }
    if {$tf(interrupts)} {
        connect_interrupts
    }
    connect_clocks_and_resets
    assign_addresses
    validate_bd_design
    save_bd_design
    close_bd_design [current_bd_design]
}

# ------------------------------------------------------------------------------------------------ small helpers

proc bd_cell {name} { return [get_bd_cells /$name] }
proc bd_pin {path} { return [get_bd_pins /$path] }
proc bd_interface {path} { return [get_bd_intf_pins /$path] }

# Sets CONFIG.* of a cell from a list of name and value.
proc configure {cell settings} {
    set config {}
    foreach {name value} $settings {
        lappend config CONFIG.$name $value
    }
    set_property -dict $config $cell
}

proc connect_interface {from to} {
    connect_bd_intf_net [bd_interface $from] [bd_interface $to]
}

# Pins that get the fabric clock and pins that get its reset are collected while the cells are made and connected at
# the end, one net each.
proc clocked_by_fabric {args} { foreach pin $args { lappend ::fabric_clock_pins $pin } }
proc reset_by_fabric {args} { foreach pin $args { lappend ::fabric_reset_pins $pin } }

# An axi_interconnect with $slaves slave sides and $masters master sides, clocked and reset as a whole.
proc create_interconnect {name slaves masters} {
    create_bd_cell -type ip -vlnv xilinx.com:ip:axi_interconnect:2.1 $name
    configure [bd_cell $name] [list NUM_SI $slaves NUM_MI $masters]
    clocked_by_fabric $name/ACLK
    reset_by_fabric $name/ARESETN
    for {set i 0} {$i < $slaves} {incr i} {
        clocked_by_fabric [format %s/S%02d_ACLK $name $i]
        reset_by_fabric [format %s/S%02d_ARESETN $name $i]
    }
    for {set i 0} {$i < $masters} {incr i} {
        clocked_by_fabric [format %s/M%02d_ACLK $name $i]
        reset_by_fabric [format %s/M%02d_ARESETN $name $i]
    }
}

# ------------------------------------------------------------------------------------------------ cells

proc create_processing_system {} {
    global tf ps7_pynq_z1
    create_bd_cell -type ip -vlnv xilinx.com:ip:processing_system7:5.5 ps7

    # The board's facts, then what this design needs of the processing system.
    set settings $ps7_pynq_z1
    lappend settings PCW_EN_CLK0_PORT 1 PCW_FPGA0_PERIPHERAL_FREQMHZ $tf(clock_mhz) PCW_EN_RST0_PORT 1
    lappend settings PCW_USE_M_AXI_GP0 1
    foreach port $tf(hp_ports) {
        lappend settings PCW_USE_S_AXI_$port 1 PCW_S_AXI_${port}_DATA_WIDTH 64
    }
    if {[llength $tf(acp_masters)] > 0} {
        # The shim drives AxUSER itself, so the tie-off inside PS7 is switched off.
        lappend settings PCW_USE_S_AXI_ACP 1 PCW_USE_DEFAULT_ACP_USER_VAL 0
    }
    lappend settings PCW_USE_FABRIC_INTERRUPT $tf(interrupts) PCW_IRQ_F2P_INTR $tf(interrupts)
    configure [bd_cell ps7] $settings

    # The pins of the package that belong to the processing system.
    create_bd_intf_port -mode Master -vlnv xilinx.com:interface:ddrx_rtl:1.0 DDR
    create_bd_intf_port -mode Master -vlnv xilinx.com:display_processing_system7:fixedio_rtl:1.0 FIXED_IO
    connect_bd_intf_net [bd_interface ps7/DDR] [get_bd_intf_ports DDR]
    connect_bd_intf_net [bd_interface ps7/FIXED_IO] [get_bd_intf_ports FIXED_IO]

    clocked_by_fabric ps7/M_AXI_GP0_ACLK
    foreach port $tf(hp_ports) {
        clocked_by_fabric ps7/S_AXI_${port}_ACLK
    }
}

proc create_clock_and_reset {} {
    create_bd_cell -type ip -vlnv xilinx.com:ip:proc_sys_reset:5.0 reset
    clocked_by_fabric reset/slowest_sync_clk
    connect_bd_net [bd_pin ps7/FCLK_RESET0_N] [bd_pin reset/ext_reset_in]
}

proc create_shell {} {
    global tf
    create_bd_cell -type module -reference $tf(shell) shell
    configure [bd_cell shell] $tf(shell_parameters)
    clocked_by_fabric shell/aclk
    reset_by_fabric shell/aresetn
}

proc create_control_bus {} {
    global tf
    # Master side 0 goes to the control block, 1.. to the DMAs in their order.
    create_interconnect control_bus 1 [expr {1 + [llength $tf(dmas)]}]
    connect_interface ps7/M_AXI_GP0 control_bus/S00_AXI
    connect_interface control_bus/M00_AXI shell/s_axi
    set side 1
    foreach dma $tf(dmas) {
        set ::control_side($dma) [format M%02d_AXI $side]
        incr side
    }
}

proc create_dma {dma} {
    global tf
    set cell dma_$dma
    set stream $tf(dma.$dma.stream)
    create_bd_cell -type ip -vlnv xilinx.com:ip:axi_dma:7.1 $cell
    configure [bd_cell $cell] [list \
        c_include_sg $tf(dma.$dma.scatter_gather) \
        c_sg_include_stscntrl_strm 0 \
        c_sg_length_width $tf(length_width) \
        c_addr_width 32 \
        c_micro_dma 0 \
        c_include_mm2s 1 \
        c_include_mm2s_dre 0 \
        c_m_axi_mm2s_data_width 64 \
        c_m_axis_mm2s_tdata_width 64 \
        c_mm2s_burst_size $tf(burst_beats) \
        c_include_s2mm 1 \
        c_include_s2mm_dre 0 \
        c_m_axi_s2mm_data_width 64 \
        c_s2mm_burst_size $tf(burst_beats)]
    clocked_by_fabric $cell/s_axi_lite_aclk $cell/m_axi_mm2s_aclk $cell/m_axi_s2mm_aclk
    if {$tf(dma.$dma.scatter_gather)} {
        clocked_by_fabric $cell/m_axi_sg_aclk
    }
    reset_by_fabric $cell/axi_resetn
    connect_interface control_bus/$::control_side($dma) $cell/S_AXI_LITE

    connect_interface $cell/M_AXIS_MM2S shell/s_axis_$stream
    if {[lsearch -exact $tf(acp_masters) $cell/M_AXI_S2MM] >= 0} {
        create_bd_cell -type module -reference axis_pad32 pad_$dma
        clocked_by_fabric pad_$dma/aclk
        reset_by_fabric pad_$dma/aresetn
        connect_interface shell/m_axis_$stream pad_$dma/s_axis
        connect_interface pad_$dma/m_axis $cell/S_AXIS_S2MM
    } else {
        connect_interface shell/m_axis_$stream $cell/S_AXIS_S2MM
    }
}

proc create_acp_port {} {
    global tf
    create_interconnect bus_acp [llength $tf(acp_masters)] 1
    create_bd_cell -type module -reference acp_port acp_port
    clocked_by_fabric acp_port/aclk ps7/S_AXI_ACP_ACLK
    reset_by_fabric acp_port/aresetn
    connect_interface bus_acp/M00_AXI acp_port/s_axi
    connect_interface acp_port/m_axi ps7/S_AXI_ACP
    set side 0
    foreach master $tf(acp_masters) {
        connect_interface $master [format bus_acp/S%02d_AXI $side]
        incr side
    }
}

# The DMA's masters that are not on the coherent port meet in an interconnect of their own, before their HP port.
proc connect_dma_memory {dma} {
    global tf
    set masters {}
    foreach master $tf(dma.$dma.masters) {
        if {[lsearch -exact $tf(acp_masters) dma_$dma/$master] < 0} {
            lappend masters $master
        }
    }
    create_interconnect bus_$dma [llength $masters] 1
    set side 0
    foreach master $masters {
        connect_interface dma_$dma/$master [format bus_%s/S%02d_AXI $dma $side]
        incr side
    }
    connect_interface bus_$dma/M00_AXI ps7/S_AXI_$tf(dma.$dma.port)
}

proc connect_interrupts {} {
    global tf
    create_bd_cell -type ip -vlnv xilinx.com:ip:xlconcat:2.1 interrupts
    configure [bd_cell interrupts] [list NUM_PORTS [expr {2 * [llength $tf(dmas)]}]]
    set input 0
    foreach dma $tf(dmas) {
        foreach line {mm2s_introut s2mm_introut} {
            connect_bd_net [bd_pin dma_$dma/$line] [bd_pin interrupts/In$input]
            incr input
        }
    }
    connect_bd_net [bd_pin interrupts/dout] [bd_pin ps7/IRQ_F2P]
}

proc connect_clocks_and_resets {} {
    set clocked {}
    foreach pin $::fabric_clock_pins {
        lappend clocked [bd_pin $pin]
    }
    connect_bd_net -net fabric_clock [bd_pin ps7/FCLK_CLK0] {*}$clocked
    set resets {}
    foreach pin $::fabric_reset_pins {
        lappend resets [bd_pin $pin]
    }
    connect_bd_net -net fabric_reset_n [bd_pin reset/peripheral_aresetn] {*}$resets
}

# ------------------------------------------------------------------------------------------------ addresses

proc assign_segment {space segment base bytes} {
    assign_bd_address -offset $base -range $bytes -target_address_space [get_bd_addr_spaces /$space] \
        [get_bd_addr_segs /$segment]
}

proc exclude_segment {space segment} {
    exclude_bd_addr_seg -target_address_space [get_bd_addr_spaces /$space] [get_bd_addr_segs /$segment]
}

proc assign_addresses {} {
    global tf
    assign_segment ps7/Data shell/s_axi/reg0 $tf(control.base) $tf(control.bytes)
    foreach dma $tf(dmas) {
        assign_segment ps7/Data dma_$dma/S_AXI_LITE/Reg $tf(dma.$dma.base) $tf(dma.$dma.bytes)
        foreach master $tf(dma.$dma.masters) {
            # The space of a DMA master is named after its channel: Data_MM2S, Data_S2MM, Data_SG.
            set space dma_$dma/Data_[string range $master 6 end]
            if {[lsearch -exact $tf(acp_masters) dma_$dma/$master] >= 0} {
                # A module reference ends an address path; its own master, below, continues it.
                assign_segment $space acp_port/s_axi/reg0 $tf(ddr.base) $tf(ddr.bytes)
            } else {
                set port $tf(dma.$dma.port)
                assign_segment $space ps7/S_AXI_$port/${port}_DDR_LOWOCM $tf(ddr.base) $tf(ddr.bytes)
            }
        }
    }
    if {[llength $tf(acp_masters)] > 0} {
        assign_segment acp_port/m_axi ps7/S_AXI_ACP/ACP_DDR_LOWOCM $tf(ddr.base) $tf(ddr.bytes)
        # The coherent port reaches more than memory; a DMA has no business there.
        foreach segment {ACP_IOP ACP_QSPI_LINEAR ACP_M_AXI_GP0} {
            exclude_segment acp_port/m_axi ps7/S_AXI_ACP/$segment
        }
    }
}
