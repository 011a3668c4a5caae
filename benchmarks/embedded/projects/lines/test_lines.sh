#!/bin/sh
printf 'one two\nthree\n' > sample.tmp
got=$(sh lines.sh sample.tmp)
rm sample.tmp
if [ "$got" != 2 ]; then
    echo "lines.sh: expected 2, got $got"
    exit 1
fi
echo ok
