"""The command line of the stand-in: ``vivado -version`` and ``vivado -mode batch … -source FILE -tclargs …``."""

from __future__ import annotations

import base64
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import IO

from . import faults as fault_list
from . import reports
from .commands import SPECS, Vivado
from .tcl import TclError, join

BANNER = "tritforge stand-in, for tests only: this is not Vivado and builds nothing that works"
DEFAULT_VERSION = "2024.1"


def banner(version: str) -> str:
    return (
        f"\n****** Vivado v{version} (64-bit)\n  **** SW {reports.build_of(version)}\n"
        + "".join(f"    ** {line}\n" for line in reports.copyright_lines(version))
        + f"    ** {BANNER}\n"
    )


def main(arguments: list[str]) -> int:
    faults = fault_list.active()
    version = os.environ.get("STANDIN_VIVADO_VERSION", DEFAULT_VERSION)
    if "wrong_version" in faults:
        version = "2019.2"
    if arguments == ["-version"]:
        year = int(version[:4])
        print(f"{'v' if year >= 2023 else 'V'}ivado v{version} (64-bit)")
        if year >= 2021:
            print("Tool Version Limit: " + version.replace(".", "."))
        print(f"SW {reports.build_of(version)}")
        for line in reports.copyright_lines(version):
            print(line)
        print(BANNER)
        return 0
    if "version_changes" in faults:
        version = "2022.2"
    script, log, tclargs = "", "", []
    seen = set()
    i = 0
    while i < len(arguments):
        option = arguments[i]
        seen.add(option)
        if option == "-tclargs":
            tclargs = arguments[i + 1 :]
            break
        if option in ("-mode", "-source", "-log"):
            i += 1
            if i >= len(arguments):
                print(f"ERROR: [Common 17-157] option '{option}' has no value")
                return 1
            if option == "-mode" and arguments[i] != "batch":
                print("ERROR: [standin] only -mode batch is known")
                return 1
            if option == "-source":
                script = arguments[i]
            if option == "-log":
                log = arguments[i]
        elif option not in ("-nojournal", "-notrace", "-nolog"):
            print(f"ERROR: [Common 17-170] Unknown option '{option}'")
            return 1
        i += 1
    if not {"-mode", "-nojournal", "-notrace"} <= seen or not script:
        print("ERROR: [standin] the build runs with -mode batch -nojournal -notrace -source FILE")
        return 1
    with Output(log) as output:
        output.write(banner(version))
        return run(script, tclargs, Vivado(version, faults), output)


class Output:
    """What the tool says: on standard output, and in its log."""

    def __init__(self, log: str) -> None:
        self._log = open(log, "w", encoding="utf-8") if log else None  # noqa: SIM115
        self._lock = threading.Lock()

    def __enter__(self) -> Output:
        return self

    def __exit__(self, *_: object) -> None:
        if self._log:
            self._log.close()

    def write(self, text: str) -> None:
        with self._lock:
            print(text, flush=True)
            if self._log:
                self._log.write(text + "\n")
                self._log.flush()

    def copy(self, stream: IO[str]) -> None:
        for line in stream:
            self.write(line.rstrip("\n"))


def run(script: str, tclargs: list[str], vivado: Vivado, output: Output) -> int:
    """Runs the script in tclsh and answers its commands; returns the exit status of the tool."""
    questions_read, questions_write = os.pipe()
    answers_read, answers_write = os.pipe()
    command = ["tclsh", str(Path(__file__).parent / "bridge.tcl"), str(questions_write), str(answers_read), script]
    command += [join(SPECS), *tclargs]
    output.write(f"source {script} -notrace")
    process = subprocess.Popen(
        command, pass_fds=(questions_write, answers_read), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    assert process.stdout is not None
    copier = threading.Thread(target=output.copy, args=(process.stdout,))
    copier.start()
    os.close(questions_write)
    os.close(answers_read)
    with (
        os.fdopen(questions_read, encoding="ascii") as questions,
        os.fdopen(answers_write, "w", encoding="ascii") as answers,
    ):
        for question in questions:
            words = [base64.b64decode(word[1:]).decode() for word in question.split()]
            try:
                status, value = "0", vivado.call(words[0], words[1:])
            except TclError as error:
                status, value = "1", str(error)
            if vivado.warnings:
                output.write("\n".join(vivado.warnings))
                vivado.warnings.clear()
            if vivado.project and vivado.project.says:
                output.write("\n".join(vivado.project.says))
                vivado.project.says.clear()
            if status == "1":
                output.write(f"ERROR: {value}")
            try:
                answers.write(f"{status} x{base64.b64encode(value.encode()).decode()}\n")
                answers.flush()
            except BrokenPipeError:
                break
    status_of_script = process.wait()
    copier.join()
    if status_of_script == 0:
        missing = vivado.project.left_out() if vivado.project else "everything"
        if missing:
            output.write(f"ERROR: [standin] the script ended without {missing}")
            status_of_script = 1
    output.write("INFO: [Common 17-206] Exiting Vivado")
    if "exit_0_after_failure" in vivado.faults:
        return 0
    return status_of_script


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
