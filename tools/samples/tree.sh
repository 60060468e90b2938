#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
# Sample of a mirror: a tree of files changes between two versions while its worker is stopped.
#
#	sudo tools/samples/tree.sh [FILES [SECONDS]]
#
# Each change of version removes all of the tree and unpacks the other version: 2,000 FILES by default.
# The worker starts 10 SECONDS later, and makes the copy equal.  inotifywait, if it is installed, is
# stopped for the same time.  It names no files in a directory that it sees late.
set -eu

files=${1:-2000} pause=${2:-10}
dir=$(mktemp -d) queue=sample-tree.$$ watcher=

cleanup() {
	[ -z "$watcher" ] || kill -KILL "$watcher"
	wqctl unlink "$queue" 2>/dev/null || true
	rm -rf "$dir"
}
trap cleanup EXIT
trap 'exit 130' INT TERM
mkdir "$dir/from" "$dir/to"

# Makes a version: each has half of the directories alone, and the same names in the others.
version() { # NAME FIRST-DIRECTORY
	i=0
	while [ $i -lt "$files" ]; do
		mkdir -p "$dir/$1/d$((i % 10 + $2))"
		echo "$1 $i" >"$dir/$1/d$((i % 10 + $2))/f$i"
		i=$((i + 1))
	done
}
change() { # NAME
	find "$dir/from" -mindepth 1 -delete
	cp -R "$dir/$1/." "$dir/from"
}

# The worker makes the copy of one key equal.  A directory's key ends with a slash.
cat >"$dir/worker" <<'EOF'
from=$1/from/${2%/} to=$1/to/${2%/}
if [ -d "$from" ]; then
	rm -rf "$to"
	cp -R "$from" "$to"
elif [ -e "$from" ]; then
	[ -d "${to%/*}" ] || mkdir -p "${to%/*}"
	cp "$from" "$to"
elif [ -e "$to" ]; then
	rm -rf "$to"
fi
EOF

version one 0
version two 5
wqctl create "$queue" --max-keys 100000
wqctl attach "$queue" "fs:$dir/from" >/dev/null
if command -v inotifywait >/dev/null; then
	inotifywait -mrq --format '%w%f' "$dir/from" >"$dir/events" 2>/dev/null &
	watcher=$!
	sleep 1
	kill -STOP "$watcher"
fi

for name in one two one two; do change "$name"; done
sleep "$pause"
echo "4 changes of $files files; then $(find "$dir/from" -type f | wc -l) files in $(
	find "$dir/from" -mindepth 1 -type d | wc -l) directories"
if [ -n "$watcher" ]; then
	kill -CONT "$watcher"
	sleep 2
	echo "inotifywait: $(wc -l <"$dir/events") events, $(
		cd "$dir" && find "$PWD/from" -type f | sort >present &&
		sort -u events | comm -12 - present | wc -l) of these files named"
fi
wqctl ls -0 "$queue" | tr '\n\0' ' \n' >"$dir/keys"
echo "wq: $(wc -l <"$dir/keys") keys, $(grep -c '/$' "$dir/keys") of them directories, $(
	wqctl sources "$queue" | awk 'NR > 1 { print $4 }') adds failed"
wqctl run -q --once "$queue" -- sh "$dir/worker" "$dir" {}
diff -r "$dir/from" "$dir/to"
echo "the copy is equal"
