#!/bin/sh
# The name of a process starts it, with its options; all else is a command of deepclean.
set -eu
case "${1-}" in
  metadata | snapshots | key_deletion | directory_deletion | mock_scm | datanode)
    name=$1
    shift
    exec python -m "services.$name" "$@"
    ;;
  streaming)
    shift
    exec python -m streaming "$@"
    ;;
  *) exec deepclean "$@" ;;
esac
