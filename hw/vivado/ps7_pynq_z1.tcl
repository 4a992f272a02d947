# Facts of the board PYNQ-Z1 for processing_system7 (Zynq-7020, DDR3, MIO), as name and value of CONFIG.<name>.
#
# They stand here so that no board file has to be installed. Source: the hardware project of the PYNQ-Z1 in the PYNQ
# board support package, 2024.1. The running board takes DDR and MIO settings from the first-stage loader of its
# image; an overlay changes the fabric only. They matter all the same: Vivado derives the fabric clocks and the
# address map from them, and whoever boots from this design gets them for real.
#
# What depends on our design (fabric clock, ports into the fabric, interrupts) is not here but in block_design.tcl.
set ps7_pynq_z1 {}

# Clocks of the processing system: 50 MHz crystal, CPU at 650 MHz (the part is graded 667).
lappend ps7_pynq_z1 \
    PCW_APU_PERIPHERAL_FREQMHZ     650 \
    PCW_CPU_CPU_6X4X_MAX_RANGE     667 \
    PCW_CRYSTAL_PERIPHERAL_FREQMHZ 50 \
    PCW_DCI_PERIPHERAL_FREQMHZ     10.159 \
    PCW_ENET0_PERIPHERAL_FREQMHZ   {1000 Mbps} \
    PCW_PCAP_PERIPHERAL_FREQMHZ    200 \
    PCW_QSPI_PERIPHERAL_FREQMHZ    200 \
    PCW_SDIO_PERIPHERAL_FREQMHZ    50 \
    PCW_UART_PERIPHERAL_FREQMHZ    100

# Voltages of the two MIO banks.
lappend ps7_pynq_z1 \
    PCW_PRESET_BANK0_VOLTAGE {LVCMOS 3.3V} \
    PCW_PRESET_BANK1_VOLTAGE {LVCMOS 1.8V}

# DDR3: one x16 chip of 512 MiB at 525 MHz, with the trace lengths of this board.
lappend ps7_pynq_z1 \
    PCW_DDR_RAM_BASEADDR                      0x00100000 \
    PCW_DDR_RAM_HIGHADDR                      0x1FFFFFFF \
    PCW_UIPARAM_DDR_ADV_ENABLE                0 \
    PCW_UIPARAM_DDR_AL                        0 \
    PCW_UIPARAM_DDR_BL                        8 \
    PCW_UIPARAM_DDR_BOARD_DELAY0              0.223 \
    PCW_UIPARAM_DDR_BOARD_DELAY1              0.212 \
    PCW_UIPARAM_DDR_BOARD_DELAY2              0.085 \
    PCW_UIPARAM_DDR_BOARD_DELAY3              0.092 \
    PCW_UIPARAM_DDR_BUS_WIDTH                 {16 Bit} \
    PCW_UIPARAM_DDR_CLOCK_0_LENGTH_MM         25.8 \
    PCW_UIPARAM_DDR_CLOCK_0_PACKAGE_LENGTH    80.4535 \
    PCW_UIPARAM_DDR_CLOCK_0_PROPOGATION_DELAY 160 \
    PCW_UIPARAM_DDR_CLOCK_1_LENGTH_MM         25.8 \
    PCW_UIPARAM_DDR_CLOCK_1_PACKAGE_LENGTH    80.4535 \
    PCW_UIPARAM_DDR_CLOCK_1_PROPOGATION_DELAY 160 \
    PCW_UIPARAM_DDR_CLOCK_2_LENGTH_MM         0 \
    PCW_UIPARAM_DDR_CLOCK_2_PACKAGE_LENGTH    80.4535 \
    PCW_UIPARAM_DDR_CLOCK_2_PROPOGATION_DELAY 160 \
    PCW_UIPARAM_DDR_CLOCK_3_LENGTH_MM         0 \
    PCW_UIPARAM_DDR_CLOCK_3_PACKAGE_LENGTH    80.4535 \
    PCW_UIPARAM_DDR_CLOCK_3_PROPOGATION_DELAY 160 \
    PCW_UIPARAM_DDR_CLOCK_STOP_EN             0 \
    PCW_UIPARAM_DDR_DQS_0_LENGTH_MM           15.6 \
    PCW_UIPARAM_DDR_DQS_0_PACKAGE_LENGTH      105.056 \
    PCW_UIPARAM_DDR_DQS_0_PROPOGATION_DELAY   160 \
    PCW_UIPARAM_DDR_DQS_1_LENGTH_MM           18.8 \
    PCW_UIPARAM_DDR_DQS_1_PACKAGE_LENGTH      66.904 \
    PCW_UIPARAM_DDR_DQS_1_PROPOGATION_DELAY   160 \
    PCW_UIPARAM_DDR_DQS_2_LENGTH_MM           0 \
    PCW_UIPARAM_DDR_DQS_2_PACKAGE_LENGTH      89.1715 \
    PCW_UIPARAM_DDR_DQS_2_PROPOGATION_DELAY   160 \
    PCW_UIPARAM_DDR_DQS_3_LENGTH_MM           0 \
    PCW_UIPARAM_DDR_DQS_3_PACKAGE_LENGTH      113.63 \
    PCW_UIPARAM_DDR_DQS_3_PROPOGATION_DELAY   160 \
    PCW_UIPARAM_DDR_DQS_TO_CLK_DELAY_0        0.040 \
    PCW_UIPARAM_DDR_DQS_TO_CLK_DELAY_1        0.058 \
    PCW_UIPARAM_DDR_DQS_TO_CLK_DELAY_2        -0.009 \
    PCW_UIPARAM_DDR_DQS_TO_CLK_DELAY_3        -0.033 \
    PCW_UIPARAM_DDR_DQ_0_LENGTH_MM            16.5 \
    PCW_UIPARAM_DDR_DQ_0_PACKAGE_LENGTH       98.503 \
    PCW_UIPARAM_DDR_DQ_0_PROPOGATION_DELAY    160 \
    PCW_UIPARAM_DDR_DQ_1_LENGTH_MM            18 \
    PCW_UIPARAM_DDR_DQ_1_PACKAGE_LENGTH       68.5855 \
    PCW_UIPARAM_DDR_DQ_1_PROPOGATION_DELAY    160 \
    PCW_UIPARAM_DDR_DQ_2_LENGTH_MM            0 \
    PCW_UIPARAM_DDR_DQ_2_PACKAGE_LENGTH       90.295 \
    PCW_UIPARAM_DDR_DQ_2_PROPOGATION_DELAY    160 \
    PCW_UIPARAM_DDR_DQ_3_LENGTH_MM            0 \
    PCW_UIPARAM_DDR_DQ_3_PACKAGE_LENGTH       103.977 \
    PCW_UIPARAM_DDR_DQ_3_PROPOGATION_DELAY    160 \
    PCW_UIPARAM_DDR_ECC                       Disabled \
    PCW_UIPARAM_DDR_ENABLE                    1 \
    PCW_UIPARAM_DDR_FREQ_MHZ                  525 \
    PCW_UIPARAM_DDR_HIGH_TEMP                 {Normal (0-85)} \
    PCW_UIPARAM_DDR_MEMORY_TYPE               {DDR 3} \
    PCW_UIPARAM_DDR_PARTNO                    {MT41J256M16 RE-125} \
    PCW_UIPARAM_DDR_TRAIN_DATA_EYE            1 \
    PCW_UIPARAM_DDR_TRAIN_READ_GATE           1 \
    PCW_UIPARAM_DDR_TRAIN_WRITE_LEVEL         1 \
    PCW_UIPARAM_DDR_USE_INTERNAL_VREF         0

# Ethernet, quad SPI flash, SD card, UART, USB, GPIO: where the board has them.
lappend ps7_pynq_z1 \
    PCW_ENET0_ENET0_IO            {MIO 16 .. 27} \
    PCW_ENET0_GRP_MDIO_ENABLE     1 \
    PCW_ENET0_GRP_MDIO_IO         {MIO 52 .. 53} \
    PCW_ENET0_PERIPHERAL_ENABLE   1 \
    PCW_ENET0_RESET_ENABLE        1 \
    PCW_ENET0_RESET_IO            {MIO 9} \
    PCW_ENET_RESET_ENABLE         1 \
    PCW_ENET_RESET_POLARITY       {Active Low} \
    PCW_ENET_RESET_SELECT         {Share reset pin} \
    PCW_GPIO_MIO_GPIO_ENABLE      1 \
    PCW_QSPI_GRP_FBCLK_ENABLE     1 \
    PCW_QSPI_GRP_FBCLK_IO         {MIO 8} \
    PCW_QSPI_GRP_IO1_ENABLE       0 \
    PCW_QSPI_GRP_SINGLE_SS_ENABLE 1 \
    PCW_QSPI_GRP_SINGLE_SS_IO     {MIO 1 .. 6} \
    PCW_QSPI_GRP_SS1_ENABLE       0 \
    PCW_QSPI_PERIPHERAL_ENABLE    1 \
    PCW_QSPI_QSPI_IO              {MIO 1 .. 6} \
    PCW_SD0_GRP_CD_ENABLE         1 \
    PCW_SD0_GRP_CD_IO             {MIO 47} \
    PCW_SD0_GRP_POW_ENABLE        0 \
    PCW_SD0_GRP_WP_ENABLE         0 \
    PCW_SD0_PERIPHERAL_ENABLE     1 \
    PCW_SD0_SD0_IO                {MIO 40 .. 45} \
    PCW_UART0_BAUD_RATE           115200 \
    PCW_UART0_PERIPHERAL_ENABLE   1 \
    PCW_UART0_UART0_IO            {MIO 14 .. 15} \
    PCW_USB0_PERIPHERAL_ENABLE    1 \
    PCW_USB0_RESET_ENABLE         1 \
    PCW_USB0_RESET_IO             {MIO 46} \
    PCW_USB0_USB0_IO              {MIO 28 .. 39} \
    PCW_USB_RESET_ENABLE          1 \
    PCW_USB_RESET_POLARITY        {Active Low} \
    PCW_USB_RESET_SELECT          {Share reset pin}

# MIO pins: level, pull-up, slew.
lappend ps7_pynq_z1 \
    PCW_MIO_0_IOTYPE  {LVCMOS 3.3V} \
    PCW_MIO_0_PULLUP  enabled \
    PCW_MIO_0_SLEW    slow \
    PCW_MIO_1_IOTYPE  {LVCMOS 3.3V} \
    PCW_MIO_1_PULLUP  enabled \
    PCW_MIO_1_SLEW    slow \
    PCW_MIO_2_IOTYPE  {LVCMOS 3.3V} \
    PCW_MIO_2_SLEW    slow \
    PCW_MIO_3_IOTYPE  {LVCMOS 3.3V} \
    PCW_MIO_3_SLEW    slow \
    PCW_MIO_4_IOTYPE  {LVCMOS 3.3V} \
    PCW_MIO_4_SLEW    slow \
    PCW_MIO_5_IOTYPE  {LVCMOS 3.3V} \
    PCW_MIO_5_SLEW    slow \
    PCW_MIO_6_IOTYPE  {LVCMOS 3.3V} \
    PCW_MIO_6_SLEW    slow \
    PCW_MIO_7_IOTYPE  {LVCMOS 3.3V} \
    PCW_MIO_7_SLEW    slow \
    PCW_MIO_8_IOTYPE  {LVCMOS 3.3V} \
    PCW_MIO_8_SLEW    slow \
    PCW_MIO_9_IOTYPE  {LVCMOS 3.3V} \
    PCW_MIO_9_PULLUP  enabled \
    PCW_MIO_9_SLEW    slow \
    PCW_MIO_10_IOTYPE {LVCMOS 3.3V} \
    PCW_MIO_10_PULLUP enabled \
    PCW_MIO_10_SLEW   slow \
    PCW_MIO_11_IOTYPE {LVCMOS 3.3V} \
    PCW_MIO_11_PULLUP enabled \
    PCW_MIO_11_SLEW   slow \
    PCW_MIO_12_IOTYPE {LVCMOS 3.3V} \
    PCW_MIO_12_PULLUP enabled \
    PCW_MIO_12_SLEW   slow \
    PCW_MIO_13_IOTYPE {LVCMOS 3.3V} \
    PCW_MIO_13_PULLUP enabled \
    PCW_MIO_13_SLEW   slow \
    PCW_MIO_14_IOTYPE {LVCMOS 3.3V} \
    PCW_MIO_14_PULLUP enabled \
    PCW_MIO_14_SLEW   slow \
    PCW_MIO_15_IOTYPE {LVCMOS 3.3V} \
    PCW_MIO_15_PULLUP enabled \
    PCW_MIO_15_SLEW   slow \
    PCW_MIO_16_IOTYPE {LVCMOS 1.8V} \
    PCW_MIO_16_PULLUP enabled \
    PCW_MIO_16_SLEW   slow \
    PCW_MIO_17_IOTYPE {LVCMOS 1.8V} \
    PCW_MIO_17_PULLUP enabled \
    PCW_MIO_17_SLEW   slow \
    PCW_MIO_18_IOTYPE {LVCMOS 1.8V} \
    PCW_MIO_18_PULLUP enabled \
    PCW_MIO_18_SLEW   slow \
    PCW_MIO_19_IOTYPE {LVCMOS 1.8V} \
    PCW_MIO_19_PULLUP enabled \
    PCW_MIO_19_SLEW   slow \
    PCW_MIO_20_IOTYPE {LVCMOS 1.8V} \
    PCW_MIO_20_PULLUP enabled \
    PCW_MIO_20_SLEW   slow \
    PCW_MIO_21_IOTYPE {LVCMOS 1.8V} \
    PCW_MIO_21_PULLUP enabled \
    PCW_MIO_21_SLEW   slow \
    PCW_MIO_22_IOTYPE {LVCMOS 1.8V} \
    PCW_MIO_22_PULLUP enabled \
    PCW_MIO_22_SLEW   slow \
    PCW_MIO_23_IOTYPE {LVCMOS 1.8V} \
    PCW_MIO_23_PULLUP enabled \
    PCW_MIO_23_SLEW   slow \
    PCW_MIO_24_IOTYPE {LVCMOS 1.8V} \
    PCW_MIO_24_PULLUP enabled \
    PCW_MIO_24_SLEW   slow \
    PCW_MIO_25_IOTYPE {LVCMOS 1.8V} \
    PCW_MIO_25_PULLUP enabled \
    PCW_MIO_25_SLEW   slow \
    PCW_MIO_26_IOTYPE {LVCMOS 1.8V} \
    PCW_MIO_26_PULLUP enabled \
    PCW_MIO_26_SLEW   slow \
    PCW_MIO_27_IOTYPE {LVCMOS 1.8V} \
    PCW_MIO_27_PULLUP enabled \
    PCW_MIO_27_SLEW   slow \
    PCW_MIO_28_IOTYPE {LVCMOS 1.8V} \
    PCW_MIO_28_PULLUP enabled \
    PCW_MIO_28_SLEW   slow \
    PCW_MIO_29_IOTYPE {LVCMOS 1.8V} \
    PCW_MIO_29_PULLUP enabled \
    PCW_MIO_29_SLEW   slow \
    PCW_MIO_30_IOTYPE {LVCMOS 1.8V} \
    PCW_MIO_30_PULLUP enabled \
    PCW_MIO_30_SLEW   slow \
    PCW_MIO_31_IOTYPE {LVCMOS 1.8V} \
    PCW_MIO_31_PULLUP enabled \
    PCW_MIO_31_SLEW   slow \
    PCW_MIO_32_IOTYPE {LVCMOS 1.8V} \
    PCW_MIO_32_PULLUP enabled \
    PCW_MIO_32_SLEW   slow \
    PCW_MIO_33_IOTYPE {LVCMOS 1.8V} \
    PCW_MIO_33_PULLUP enabled \
    PCW_MIO_33_SLEW   slow \
    PCW_MIO_34_IOTYPE {LVCMOS 1.8V} \
    PCW_MIO_34_PULLUP enabled \
    PCW_MIO_34_SLEW   slow \
    PCW_MIO_35_IOTYPE {LVCMOS 1.8V} \
    PCW_MIO_35_PULLUP enabled \
    PCW_MIO_35_SLEW   slow \
    PCW_MIO_36_IOTYPE {LVCMOS 1.8V} \
    PCW_MIO_36_PULLUP enabled \
    PCW_MIO_36_SLEW   slow \
    PCW_MIO_37_IOTYPE {LVCMOS 1.8V} \
    PCW_MIO_37_PULLUP enabled \
    PCW_MIO_37_SLEW   slow \
    PCW_MIO_38_IOTYPE {LVCMOS 1.8V} \
    PCW_MIO_38_PULLUP enabled \
    PCW_MIO_38_SLEW   slow \
    PCW_MIO_39_IOTYPE {LVCMOS 1.8V} \
    PCW_MIO_39_PULLUP enabled \
    PCW_MIO_39_SLEW   slow \
    PCW_MIO_40_IOTYPE {LVCMOS 1.8V} \
    PCW_MIO_40_PULLUP enabled \
    PCW_MIO_40_SLEW   slow \
    PCW_MIO_41_IOTYPE {LVCMOS 1.8V} \
    PCW_MIO_41_PULLUP enabled \
    PCW_MIO_41_SLEW   slow \
    PCW_MIO_42_IOTYPE {LVCMOS 1.8V} \
    PCW_MIO_42_PULLUP enabled \
    PCW_MIO_42_SLEW   slow \
    PCW_MIO_43_IOTYPE {LVCMOS 1.8V} \
    PCW_MIO_43_PULLUP enabled \
    PCW_MIO_43_SLEW   slow \
    PCW_MIO_44_IOTYPE {LVCMOS 1.8V} \
    PCW_MIO_44_PULLUP enabled \
    PCW_MIO_44_SLEW   slow \
    PCW_MIO_45_IOTYPE {LVCMOS 1.8V} \
    PCW_MIO_45_PULLUP enabled \
    PCW_MIO_45_SLEW   slow \
    PCW_MIO_46_IOTYPE {LVCMOS 1.8V} \
    PCW_MIO_46_PULLUP enabled \
    PCW_MIO_46_SLEW   slow \
    PCW_MIO_47_IOTYPE {LVCMOS 1.8V} \
    PCW_MIO_47_PULLUP enabled \
    PCW_MIO_47_SLEW   slow \
    PCW_MIO_48_IOTYPE {LVCMOS 1.8V} \
    PCW_MIO_48_PULLUP enabled \
    PCW_MIO_48_SLEW   slow \
    PCW_MIO_49_IOTYPE {LVCMOS 1.8V} \
    PCW_MIO_49_PULLUP enabled \
    PCW_MIO_49_SLEW   slow \
    PCW_MIO_50_IOTYPE {LVCMOS 1.8V} \
    PCW_MIO_50_PULLUP enabled \
    PCW_MIO_50_SLEW   slow \
    PCW_MIO_51_IOTYPE {LVCMOS 1.8V} \
    PCW_MIO_51_PULLUP enabled \
    PCW_MIO_51_SLEW   slow \
    PCW_MIO_52_IOTYPE {LVCMOS 1.8V} \
    PCW_MIO_52_PULLUP enabled \
    PCW_MIO_52_SLEW   slow \
    PCW_MIO_53_IOTYPE {LVCMOS 1.8V} \
    PCW_MIO_53_PULLUP enabled \
    PCW_MIO_53_SLEW   slow
