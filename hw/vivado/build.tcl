# Builds one tritforge bitstream, from RTL to .bit, .hwh, .xsa and reports, in project mode.
#
#   vivado -mode batch -nojournal -notrace -source build.tcl -tclargs SETTINGS.TCL
#
# SETTINGS.TCL is the one generated file (pipelines/vivado/settings.py writes it from config/bitstreams/*.yaml); it
# fills the array tf. Everything else is constant and stands in this folder. The working folder must be new and
# empty: nothing is ever overwritten, so a file that is there was made by this run.
#
# This script measures and records; it does not judge. Whether timing, resources and messages are good enough is
# decided by pipelines/vivado/gates.py from the files written here. It does stop at the first thing that did not
# happen, because Vivado itself can go on, and even exit 0, after a failed run.

set scripts [file dirname [file normalize [info script]]]
set settings [lindex $argv 0]
if {[llength $argv] != 1 || ![file isfile $settings]} {
    error "build.tcl takes one argument: the generated settings file"
}
source $settings

source [file join $scripts facts.tcl]
source [file join $scripts ps7_pynq_z1.tcl]
source [file join $scripts project.tcl]
source [file join $scripts block_design.tcl]
source [file join $scripts reports.tcl]

# A plain `error` in a sourced script already ends batch mode with status 1; the explicit exit makes sure of it for
# errors of Vivado's own commands too, and leaves the reason as the last fact.
if {[catch {
    facts_open facts.tsv
    fact attempt $tf(attempt)
    # Local time without a zone, as in the date of every report, so that the two can be compared.
    fact started [clock format [clock seconds] -format {%Y-%m-%d %H:%M:%S}]
    fact vivado_version [version -short]
    check_version
    create_tritforge_project
    add_tritforge_sources
    create_tritforge_block_design
    add_block_design_wrapper
    run_synthesis
    run_implementation
    write_reports
    write_platform
    fact finished 1
} reason]} {
    fact failed [string map {\n { } \t { }} $reason]
    puts "ERROR: \[tritforge\] $reason"
    puts $::errorInfo
    exit 1
}
exit 0
