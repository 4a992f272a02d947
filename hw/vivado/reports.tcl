# What is measured on the implemented design, and the files that leave the build.

proc write_reports {} {
    global tf
    # Only now are the figures those of the routed design: WNS asked for before open_run reads as 0.000.
    open_run impl_1 -name impl_1
    file mkdir reports

    report_timing_summary -delay_type min_max -max_paths 10 -report_unconstrained -file reports/timing_summary.rpt
    report_clocks -file reports/clocks.rpt
    report_clock_interaction -delay_type min_max -file reports/clock_interaction.rpt
    report_cdc -file reports/cdc.rpt
    report_utilization -file reports/utilization.rpt
    report_utilization -hierarchical -hierarchical_depth 5 -file reports/utilization_hierarchical.rpt
    report_power -file reports/power.rpt
    report_drc -file reports/drc.rpt
    report_methodology -file reports/methodology.rpt
    report_route_status -file reports/route_status.rpt

    # The tool's own figures. An empty answer (no path at all) is recorded as empty, and the gate refuses it.
    set run [get_runs impl_1]
    foreach statistic {WNS TNS WHS THS TPWS} {
        fact impl_1.$statistic [get_property STATS.$statistic $run]
    }
    foreach {name type} {setup max hold min} {
        set path [get_timing_paths -delay_type $type -max_paths 1 -nworst 1]
        fact slack.$name [expr {[llength $path] ? [get_property SLACK $path] : ""}]
    }
    fact part [get_property PART [current_project]]
}

proc write_platform {} {
    global tf
    file mkdir out
    set implementation [get_property DIRECTORY [get_runs impl_1]]
    write_hw_platform -fixed -include_bit -file out/$tf(project).xsa
    # `file copy` without -force: an existing file is an error.
    file copy [file join $implementation $tf(design)_wrapper.bit] out/$tf(project).bit
    set generated [file join project $tf(project).gen sources_1 bd $tf(design) hw_handoff $tf(design).hwh]
    file copy $generated out/$tf(project).hwh
}
