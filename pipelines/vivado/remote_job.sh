#!/bin/sh
# One build on a build host, so that it outlives the connection that started it.
#
#   remote_job.sh start FOLDER SETTINGS ARGUMENTS…   begins, and returns at once
#   remote_job.sh poll FOLDER OFFSET                 a line of state, then the log from that byte on
#   remote_job.sh stop FOLDER                        ends it with everything it started
#
# State, all files in FOLDER: pid (of the session leader, which is also its group), log, status (exit status, written
# last, by rename). SETTINGS is the settings64.sh to source, or - when vivado is on the PATH.
set -u

start() {
    folder=$1 settings=$2
    shift 2
    cd "$folder" || exit 1
    # A second call must not begin a second build: creating the folder is what decides.
    mkdir started 2>/dev/null || { echo already; return 0; }
    setsid nohup sh "$self" run "$folder" "$settings" "$@" </dev/null >log 2>&1 &
    echo started
}

run() {
    folder=$1 settings=$2
    shift 2
    echo $$ >pid
    if [ "$settings" != - ]; then
        # shellcheck disable=SC1090
        . "$settings"
    fi
    vivado "$@"
    echo $? >status.new
    mv status.new status
}

poll() {
    folder=$1 offset=$2
    cd "$folder" 2>/dev/null || { echo absent; return 0; }
    if [ -f status ]; then
        echo "ended $(cat status)"
    elif [ ! -d started ]; then
        echo absent
    elif [ ! -f pid ]; then
        echo starting
    elif kill -0 "$(cat pid)" 2>/dev/null; then
        echo running
    elif [ -f status ]; then
        # It ended between the two questions.
        echo "ended $(cat status)"
    else
        echo lost
    fi
    tail -c "+$((offset + 1))" log 2>/dev/null
}

# Process ids that work in the folder or below: Vivado's runs have sessions of their own, which end with nobody.
inside() {
    for process in /proc/[0-9]*; do
        case $(readlink "$process/cwd" 2>/dev/null) in
        "$place" | "$place"/*) echo "${process#/proc/}" ;;
        esac
    done
}

# shellcheck disable=SC2046,SC2086  # process ids, to be split
stop() {
    folder=$1
    place=$(cd "$folder" 2>/dev/null && pwd -P) || return 0
    group=
    # Of a build that ended, the number may be another's by now.
    [ -f "$place/pid" ] && [ ! -f "$place/status" ] && group=-$(cat "$place/pid")
    kill -TERM $group $(inside) 2>/dev/null
    for _ in 1 2 3; do
        [ -n "$(inside)" ] || return 0
        sleep 1
    done
    kill -KILL $group $(inside) 2>/dev/null
    return 0
}

# After `cd` a relative path to this file would lead nowhere.
case $0 in
/*) self=$0 ;;
*) self=$PWD/$0 ;;
esac
command=$1
shift
"$command" "$@"
