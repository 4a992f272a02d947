# Runs inside tclsh: every command of Vivado becomes a question to the Python side, over two pipes.
# A question is the command and its words, each base64, in one line; an answer is 0 or 1 and the result, base64.

namespace eval standin {
    variable to [open /dev/fd/[lindex $argv 0] w]
    variable from [open /dev/fd/[lindex $argv 1] r]
    fconfigure $to -buffering line -translation lf
    fconfigure $from -translation lf

    proc encoded {text} { return x[binary encode base64 [encoding convertto utf-8 $text]] }

    proc ask {args} {
        variable to
        variable from
        set line {}
        foreach word $args {
            lappend line [encoded $word]
        }
        puts $to [join $line " "]
        if {[gets $from answer] < 0} {
            exit 70
        }
        set value [encoding convertfrom utf-8 [binary decode base64 [string range [lindex $answer 1] 1 end]]]
        if {[lindex $answer 0]} {
            # Vivado puts the word in front of its messages; the error itself carries the text.
            return -code error "ERROR: $value"
        }
        return $value
    }
}

foreach name [lindex $argv 3] {
    proc ::$name {args} "uplevel 1 \[list standin::ask $name {*}\$args\]"
}

# The tool's own clock, so that a test can set it.
rename clock standin::clock
proc clock {subcommand args} {
    if {$subcommand eq "seconds" && [info exists ::env(STANDIN_VIVADO_CLOCK)] && $::env(STANDIN_VIVADO_CLOCK) ne ""} {
        return [expr {int($::env(STANDIN_VIVADO_CLOCK))}]
    }
    return [uplevel 1 [list standin::clock $subcommand {*}$args]]
}

# Never take an unknown command for a program of this machine.
set ::auto_noexec 1

set argv0 vivado
set standin_script [lindex $argv 2]
set argv [lrange $argv 4 end]
set argc [llength $argv]
source $standin_script
