#!/bin/sh
# Denies a command that removes files.
if grep -q '"command": "rm '; then
  echo "use git rm instead" >&2
  exit 2
fi
