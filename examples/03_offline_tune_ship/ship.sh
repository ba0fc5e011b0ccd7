#!/bin/sh
# Usage: ship.sh ATTUNE SERVE LIBRARY FOLDER
#
# Record what a program needs, tune it, ship the result, and use it on another machine without
# tuning. ATTUNE and SERVE are the programs, LIBRARY is libattune.so, FOLDER is made anew.
set -eu
unset ATTUNE_DB ATTUNE_SYSTEM_DB_PATH ATTUNE_POLICY ATTUNE_PLUGINS ATTUNE_RECORD
attune=$1 serve=$2 library=$3 folder=$4
rm -rf "$folder" && mkdir -p "$folder" && cd "$folder"

here() { env XDG_DATA_HOME="$folder/here" "$@"; }   # the machine that tunes
there() {                                            # the machine that serves: its own home,
  env XDG_DATA_HOME="$folder/there" LD_LIBRARY_PATH="$folder/installed/lib" \
    ATTUNE_POLICY=db "$@"                            # and its own installation of attune
}
step() { printf '\n$ %s\n' "$*"; }
expect() {  # expect TEXT COMMAND...: prints what it says, which has TEXT in it
  text=$1 && shift
  said=$("$@")
  printf '%s\n' "$said"
  case $said in *"$text"*) ;; *) echo "expected: $text" >&2; exit 1 ;; esac
}
problem='gated_linear_attention T=384 H=2 D=32 --backend cpu'

step 'attune record -- serve'
expect 'tunings 0, found in databases 0, heuristic 2' \
  here env ATTUNE_POLICY=db "$attune" record --output shapes.jsonl -- "$serve"
cat shapes.jsonl

step 'attune tune @shapes.jsonl --dry-run'
here "$attune" tune @shapes.jsonl --dry-run

step 'attune tune @shapes.jsonl'
here "$attune" tune @shapes.jsonl --budget 4s

# Rows measured in noise (grade C) are not shipped, unless one insists: a busy machine knows no other.
step 'attune db export --ship --output mine.db'
here "$attune" db export --ship --min-grade C --output mine.db
here "$attune" db verify --strict mine.db

mkdir -p installed/lib installed/share/attune/db.d
cp "$library" installed/lib/libattune.so.0
step "attune explain $problem    # there, before"
expect 'heuristic   chosen' there "$attune" explain $problem

step 'cp mine.db PREFIX/share/attune/db.d/; serve'
cp mine.db installed/share/attune/db.d/
expect 'tunings 0, found in databases 2, heuristic 0' there "$serve"

step "attune explain $problem    # after"
expect 'a shipped row' there "$attune" explain $problem

# The same by name, where nothing may be installed.
rm installed/share/attune/db.d/mine.db
expect 'found in databases 2, heuristic 0' there env ATTUNE_SYSTEM_DB_PATH="$folder/mine.db" "$serve"
test ! -e there  # nothing was written there
