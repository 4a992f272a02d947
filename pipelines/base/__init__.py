"""What everything else stands on: errors, deadlines, commands, files, console."""
