"""The emulated Zynq-7000: its kernel, the process that plays its fabric, and the machine itself."""
