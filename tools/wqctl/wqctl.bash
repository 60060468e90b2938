# SPDX-License-Identifier: GPL-2.0-only
# shellcheck shell=bash
#
# Completion for wqctl.  Commands and options are parsed from the output of wqctl
# --help, so that there is no second list to maintain.  Names of queues come from
# `wqctl ls`.  Needs the package bash-completion.

_wqctl_help() # WQCTL [COMMAND]
{
	# argp's default layout, even if the user's environment sets another
	ARGP_HELP_FMT='' LC_ALL=C "$@" --help 2>/dev/null
}

_wqctl_takes_value() # HELP OPTION
{
	[[ $1 =~ $'\n'\ +("$2",\ --[a-z-]+|(-.,\ )?"$2")=[A-Z] ]]
}

_wqctl_queues() # WQCTL
{
	"$1" ls 2>/dev/null |
		sed -nE '1d; s/^([A-Za-z0-9_+:@-][A-Za-z0-9._+:@-]*)([[:space:]].*)?$/\1/p'
}

_wqctl()
{
	# shellcheck disable=SC2034  # what _init_completion sets
	local cur prev words cword split
	_init_completion -s -n : || return

	local wqctl=${1/#\~/$HOME} help usage='' found='' command='' queue='' i args=0 needs_queue=1 typed raw=0
	help=$(_wqctl_help "$wqctl")
	for ((i = 1; i < cword; i++)); do
		case ${words[i]} in
		--) continue ;;
		-*)
			[[ ${words[i]} != --fd* || $command == bind ]] || needs_queue=
			if _wqctl_takes_value "$help" "${words[i]}"; then ((++i)); fi
			continue
			;;
		esac
		if [[ ! $command ]]; then
			command=${words[i]}
			help=$(_wqctl_help "$wqctl" "$command")
			usage=$(sed '1!{/^[^ ]/Q}' <<<"$help")
		elif [[ $args -eq 1 && $usage == *" COMMAND "* ]]; then
			break
		else
			[[ $args -gt 0 ]] || queue=${words[i]}
			((++args))
		fi
	done

	if [[ $split == true ]] || _wqctl_takes_value "$help" "$prev"; then
		case $prev in
		--order) found='fifo priority priority: priority:strict groups: prefix:' ;;
		--limiter) found='default-controller default-item exponential: fast-slow: bucket: max-wait:' ;;
		-o | --output) [[ $command != @(run|watch) ]] || found='group line' ;;
		--events) found='modify attrib close_write moved_from moved_to move create delete' ;;
		--failed-to) found=$(_wqctl_queues "$wqctl") ;;
		*) return ;; # a number or a time
		esac
	elif [[ $args -eq 1 && $usage == *" COMMAND "* && ($i -lt $cword || $cur != -*) ]]; then
		# wqctl run QUEUE [--] COMMAND: complete the words of COMMAND.
		# _command_offset also counts words that are split at colons.
		typed=$(IFS='' && echo "${words[*]:0:i}")
		while [[ $(IFS='' && echo "${COMP_WORDS[*]:0:raw}") != "$typed" ]]; do
			((++raw <= COMP_CWORD)) || return
		done
		_command_offset "$raw"
		return
	elif [[ $cur == -* ]]; then
		# the options are indented, other lines may begin with one, too
		found=$(grep "^ " <<<"$help" | _parse_help -)
	elif [[ ! $command ]]; then
		found=$(sed -nE '/^ Commands:$/,/^$/s/^  ([a-z][a-z-]*)( .*)?$/\1/p' <<<"$help")
	elif [[ $args -eq 0 && $needs_queue && $command != create && $usage == *QUEUE* ]]; then
		found=$(_wqctl_queues "$wqctl")
	elif [[ $args -ge 1 && $queue && $usage =~ QUEUE.*KEY && $command != add ]]; then
		# keys without white space, of the first 64 KiB
		found=$("$wqctl" ls -0 "$queue" 2>/dev/null | head -c 65536 | tr '\0\n' '\n\1' |
			grep -avE '[[:space:][:cntrl:]]')
	fi
	mapfile -t COMPREPLY < <(compgen -W "$found" -- "$cur")
	[[ ${COMPREPLY-} != *= ]] || compopt -o nospace
	__ltrim_colon_completions "$cur"
} &&
	complete -F _wqctl wqctl
