"""Faults a test can ask for, through STANDIN_VIVADO_FAULT: a comma-separated list of ``name`` or ``name:argument``."""

from __future__ import annotations

import os

KNOWN = {
    "exit_0_after_failure": "synthesis fails, the process ends with status 0 all the same",
    "run_not_complete": "implementation stops half-way without an error",
    "run_overtime": "the implementation run is not done in its minutes, and goes on in a session of its own",
    "stale_report": "the timing report in the folder is one of an earlier day",
    "negative_slack": "setup is missed; an argument such as ExtraTimingOpt names a place directive that meets it",
    "hold_violation": "hold is missed",
    "pulse_width_violation": "pulse width is missed",
    "empty_slack": "there is no timing path at all",
    "critical_warning": "a critical warning in the log of the implementation run",
    "critical_warning_synthesis": "a critical warning in the log of the synthesis run",
    "unclocked_registers": "registers without a clock",
    "unsafe_crossing": "paths between clocks that are not safe",
    "too_many_luts": "more LUTs than the limit",
    "drc_error": "a design rule violation of severity Error",
    "unrouted": "nets that are not routed",
    "killed_run": "the implementation run is killed",
    "out_of_memory": "the kernel ends the implementation run for want of memory",
    "licence_missing": "no licence; an argument is the number of tries after which there is one",
    "missing_ip": "an IP core is not in the catalogue",
    "wrong_version": "the tool is of another version",
    "version_changes": "the version asked for before the build is another than the one that builds",
    "cancelled_run": "somebody cancels the run",
    "truncated_bit": "the bitstream is cut off",
    "wrong_content_id": "the bitstream carries another USR_ACCESS value",
    "wrong_handoff": "the .hwh says another clock than the design",
    "missing_report": "a report is not written",
    "report_disagrees": "the timing report and the tool's own figures differ",
    "phase_differs": "one implementation phase comes out differently; the argument is its name",
    "crash": "the tool ends abnormally",
    "hang": "the tool never ends",
    "slow": "each run takes this many seconds",
}


def active() -> dict[str, str]:
    """The faults asked for, with their arguments."""
    chosen: dict[str, str] = {}
    for item in filter(None, os.environ.get("STANDIN_VIVADO_FAULT", "").split(",")):
        name, _, argument = item.partition(":")
        if name not in KNOWN:
            raise SystemExit(f"stand-in vivado: unknown fault '{name}'; known are {', '.join(KNOWN)}")
        chosen[name] = argument
    return chosen
