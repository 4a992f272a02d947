"""``python3 -m board_rt serve ROOT SIGNERS`` (a session), ``status ROOT`` (for people), ``job NAME`` (of a release)."""

import sys


def main(arguments):
    if len(arguments) == 3 and arguments[0] == "serve":
        from board_rt.agent import Session

        session = Session(arguments[1], arguments[2])
        session.send({"hello": 1})
        session.serve()
        return 0
    if len(arguments) == 2 and arguments[0] == "status":
        import json

        from board_rt.facts import gather

        print(json.dumps(gather(arguments[1]), indent=2))
        return 0
    if len(arguments) == 2 and arguments[0] == "job":
        from board_rt.jobs import run

        return run(arguments[1])
    print(__doc__, file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
