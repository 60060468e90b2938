#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
# Sample of a mirror: a tree of files changes between two versions while its worker is stopped.
#
#	sudo tools/samples/tree.sh [FILES [SECONDS]]
#
# Each change of version removes all of the tree and unpacks the other version: 2,000 FILES by default.
# The worker starts 10 SECONDS later, and makes the copy equal.  Programs that name changed files are
# stopped for the same time: wqctl watch, and inotifywait and watchman if they are installed.
# inotifywait names no files in a directory that it sees late.  watchman reads the directory then.
# shellcheck disable=SC2086  # $watchers are numbers
set -eu

files=${1:-2000} pause=${2:-10}
dir=$(mktemp -d) queue=sample-tree.$$ watchers=

cleanup() {
	[ -z "$watchers" ] || kill -KILL $watchers
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

# The worker makes the copy of one key equal.  A directory's key ends with a slash, and / stands for
# all.  After an unmount there is an empty directory: the worker compares device and inode, and stays
# in the right directory, so that the copy does not become empty.
cat >"$dir/worker" <<'EOF'
cd "$1/from" && [ "$(stat -c %d:%i .)" = "$3" ] || { echo "the tree is gone" >&2; exit 1; }
from=./${2%/} to=$1/to/${2%/}
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
wqctl watch --print "fs:$dir/from" >"$dir/wq" &
watchers=$!
if command -v inotifywait >/dev/null; then
	(cd "$dir/from" && exec inotifywait -mrq --format '%w%f' .) >"$dir/inotifywait" 2>/dev/null &
	watchers="$watchers $!"
fi
ask() { watchman --sockname="$dir/socket" --no-spawn "$@"; }
if command -v watchman >/dev/null; then
	watchman --foreground --sockname="$dir/socket" --logfile="$dir/log" --statefile="$dir/state" \
		>/dev/null 2>&1 &
	watchers="$watchers $!"
	until ask watch "$dir/from" >/dev/null 2>&1; do sleep 0.1; done
	clock=$(ask clock "$dir/from" | sed -n 's/.*"clock": "\(.*\)".*/\1/p')
fi
sleep 1
kill -STOP $watchers

for name in one two one two; do change "$name"; done
sleep "$pause"
echo "4 changes of $files files; then $(find "$dir/from" -type f | wc -l) files in $(
	find "$dir/from" -mindepth 1 -type d | wc -l) directories"
kill -CONT $watchers
sleep 2
if command -v watchman >/dev/null; then
	echo "[\"query\", \"$dir/from\", { \"since\": \"$clock\", \"fields\": [\"name\"] }]" | ask -j |
		sed -n '/"files": \[/,/\]/s/^ *"\(.*\)",\{0,1\}$/\1/p' >"$dir/watchman"
fi
find "$dir/from" -type f -printf '%P\n' >"$dir/present"
set -- $watchers
for name in wq inotifywait watchman; do
	[ -e "$dir/$name" ] || continue
	ticks=$(awk '{ print $14 + $15 }' "/proc/$1/stat")
	shift
	# A name that ends with a slash stands for all files of the directory.
	echo "$name: $(wc -l <"$dir/$name") lines, $(
		sed 's,^\./,,' "$dir/$name" | awk 'NR == FNR { named[$0]; next }
			$0 in named || substr($0, 1, index($0, "/")) in named { n++ }
			END { print n + 0 }' - "$dir/present"
	) of these files named, $((ticks * 1000 / $(getconf CLK_TCK))) ms of CPU"
done
wqctl ls -0 "$queue" | tr '\n\0' ' \n' >"$dir/keys"
echo "the queue: $(wc -l <"$dir/keys") keys, $(grep -c '/$' "$dir/keys") of them directories, $(
	wqctl sources "$queue" | awk 'NR > 1 { print $4 }') adds failed"
root=$(stat -c %d:%i "$dir/from")
wqctl run -q --once "$queue" -- sh "$dir/worker" "$dir" {} "$root"
diff -r "$dir/from" "$dir/to"
echo "the copy is equal"

mv "$dir/from" "$dir/gone"
mkdir "$dir/from"
wqctl add "$queue" / d0/ >/dev/null
wqctl run -q --once --max-retries 0 "$queue" -- sh "$dir/worker" "$dir" {} "$root" 2>/dev/null || true
diff -r "$dir/gone" "$dir/to"
echo "the copy outlives the tree"
