# Completion of tasks and flags for fish: `source docs/completion/inv.fish`.
function __tritforge_inv
    set -l words (commandline -opc) (commandline -ct)
    $words[1] --complete -- tasks.py $words[2..-1] 2>/dev/null
end
complete -c inv -f -a '(__tritforge_inv)'
