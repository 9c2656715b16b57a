# Sourcing a file runs it as this user. So the file, and each directory above it, must belong to
# this user or root, and nobody else may be able to write it. A group that is called as the owner is
# the owner's own; in a directory with the sticky bit nobody else can replace what is not theirs.
# check_environment FILE: 64, and on stderr what others may write and what to do, unless it is so.
check_environment() {
  local path owner mode names why
  path=$(realpath -e -- "$1") || return 64
  while :; do
    why=''
    read -r owner mode names < <(stat -c '%u %a %U:%G' -- "$path")
    if [ -z "$names" ]; then why="cannot be examined"
    elif [ "$owner" != 0 ] && [ "$owner" != "$EUID" ]; then why="belongs to ${names%%:*}, who may change it"
    elif [ -d "$path" ] && (( 8#$mode & 8#1000 )); then :
    elif (( 8#$mode & 8#2 )); then why="may be written by every user (mode $mode)"
    elif (( 8#$mode & 8#20 )) && { [ "${names%%:*}" != "${names#*:}" ] || [ "$names" = UNKNOWN:UNKNOWN ]; }; then
      why="may be written by group ${names#*:} (mode $mode)"
    fi
    if [ -n "$why" ]; then
      echo "'$1' is not sourced: '$path' $why; let only this user and root write it and all directories above it, or keep the file elsewhere" >&2
      return 64
    fi
    [ "$path" != / ] || return 0
    path=$(dirname -- "$path")
  done
}
