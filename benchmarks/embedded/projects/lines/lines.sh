#!/bin/sh
# Prints how many lines the file has.
file="$1"
if [ ! -f "$file" ]; then
    echo "no such file: $file" >&2
    exit 1
fi
wc -w < "$file" | tr -d ' '
