# Completion of tasks and flags for bash: `source docs/completion/inv.bash`, in .bashrc with the whole path.
_tritforge_inv() {
    # Invoke knows the program by the name of its file.
    local words
    words=$("${COMP_WORDS[0]}" --complete -- tasks.py "${COMP_WORDS[@]:1}" 2>/dev/null)
    mapfile -t COMPREPLY < <(compgen -W "$words" -- "$2")
}
complete -o default -F _tritforge_inv ./inv inv
