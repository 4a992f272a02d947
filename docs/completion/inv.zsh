# Completion of tasks and flags for zsh: `source docs/completion/inv.zsh` after compinit.
_tritforge_inv() {
    local -a found
    found=("${(@f)$(${words[1]} --complete -- tasks.py ${words[2,-1]} 2>/dev/null)}")
    compadd -- $found
}
compdef _tritforge_inv ./inv inv
