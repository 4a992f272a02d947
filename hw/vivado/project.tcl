# The project: sources in, synthesis and implementation run, each run checked by its own status.

# The version that was asked for its number and judged before this build started, and no other.
proc check_version {} {
    global tf
    set found [version -short]
    if {$found ne $tf(vivado_version)} {
        error "Vivado is version $found, but version $tf(vivado_version) was found before the build"
    }
}

proc create_tritforge_project {} {
    global tf
    create_project -part $tf(part) $tf(project) project
    # Reproducibility: a fixed number of threads, no cache of synthesised IP, and one language for all wrappers.
    set_param general.maxThreads $tf(threads)
    config_ip_cache -disable_cache
    set_property target_language Verilog [current_project]
}

proc add_tritforge_sources {} {
    global tf
    add_files -norecurse -fileset sources_1 $tf(sources)
    # The content id in USR_ACCESS can be read back from the configured device, by JTAG too, without our registers.
    # Never TIMESTAMP: two builds of the same sources must give the same bits.
    set channel [open content_id.xdc w]
    puts $channel "set_property BITSTREAM.CONFIG.USR_ACCESS $tf(content_id) \[current_design\]"
    close $channel
    add_files -norecurse -fileset constrs_1 content_id.xdc
    # The shell must be known to Vivado before a block design can refer to it.
    update_compile_order -fileset sources_1
}

proc add_block_design_wrapper {} {
    global tf
    set design_file [get_files $tf(design).bd]
    # One netlist, synthesised as a whole: no out-of-context run whose result could come from elsewhere.
    set_property synth_checkpoint_mode None $design_file
    generate_target all $design_file
    set wrapper [make_wrapper -files $design_file -top]
    # As a list: the path is absolute, and may have a space in it.
    add_files -norecurse -fileset sources_1 [list $wrapper]
    set_property top $tf(design)_wrapper [get_filesets sources_1]
    update_compile_order -fileset sources_1
}

# Waits for a run, at most $minutes, and raises unless it did all of its work.
proc finish_run {name minutes} {
    # An expired wait is not an error for Vivado, so the status below decides.
    wait_on_run -timeout $minutes $name
    set run [get_runs $name]
    set status [get_property STATUS $run]
    set progress [get_property PROGRESS $run]
    fact $name.status $status
    fact $name.progress $progress
    if {[string match -nocase *running* $status]} {
        # The run is a process of its own and goes on; whoever started this tool ends it (pipelines/vivado/leftovers.py).
        error "run $name was still running after $minutes minutes, at $progress"
    }
    if {$progress ne "100%"} {
        error "run $name stopped at $progress with status '$status'"
    }
    # "Failed Timing" is for the timing gate to judge, with the reports that are still to be written.
    if {![string match "*Complete!" $status] && ![string match "*Complete, Failed Timing!" $status]} {
        error "run $name ended with status '$status'"
    }
    if {[get_property NEEDS_REFRESH $run]} {
        error "run $name is out of date: a source changed while it ran"
    }
}

proc run_synthesis {} {
    global tf
    set run [get_runs synth_1]
    # No incremental checkpoint, here and below: the result must not depend on an earlier one.
    set_property AUTO_INCREMENTAL_CHECKPOINT 0 $run
    set_property STEPS.SYNTH_DESIGN.ARGS.DIRECTIVE $tf(strategy.synthesis) $run
    launch_runs synth_1 -jobs $tf(jobs)
    finish_run synth_1 $tf(run_minutes)
}

proc run_implementation {} {
    global tf
    set run [get_runs impl_1]
    set_property AUTO_INCREMENTAL_CHECKPOINT 0 $run
    set_property STEPS.OPT_DESIGN.ARGS.DIRECTIVE $tf(strategy.opt) $run
    set_property STEPS.PLACE_DESIGN.ARGS.DIRECTIVE $tf(strategy.place) $run
    optional_step $run PHYS_OPT_DESIGN $tf(strategy.phys_opt)
    set_property STEPS.ROUTE_DESIGN.ARGS.DIRECTIVE $tf(strategy.route) $run
    optional_step $run POST_ROUTE_PHYS_OPT_DESIGN $tf(strategy.post_route_phys_opt)
    # write_hw_platform wants the bitstream in the run's own folder, so the run writes it.
    launch_runs impl_1 -to_step write_bitstream -jobs $tf(jobs)
    finish_run impl_1 $tf(run_minutes)
}

proc optional_step {run step directive} {
    if {$directive eq "off"} {
        set_property STEPS.$step.IS_ENABLED false $run
    } else {
        set_property STEPS.$step.IS_ENABLED true $run
        set_property STEPS.$step.ARGS.DIRECTIVE $directive $run
    }
}
