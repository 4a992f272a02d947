# Facts of a build, one a line: name, tab, value. pipelines/vivado/gates.py reads them beside the reports, so that a
# report that says something else than the tool itself is noticed.

proc facts_open {path} {
    if {[file exists $path]} {
        error "$path exists already: the working folder of a build must be new"
    }
    set ::facts_path [file normalize $path]
}

# Opened and closed for each line: what is known survives a crash of the tool.
proc fact {name value} {
    if {![info exists ::facts_path]} {
        return
    }
    set channel [open $::facts_path a]
    puts $channel "$name\t$value"
    close $channel
}
