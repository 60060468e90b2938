# SPDX-License-Identifier: GPL-2.0-only
# Makes strings in C from help.txt, whose head describes it: HELP_ADD is the help of add.  argp prints
# the text behind a \v after the options.

function end_paragraph() {
	if (part != "")
		text = text (n == 1 && name != "SPEC" ? "\\v" : n ? "\\n\\n" : "") part
	n += part != ""
	part = ""
}

function end_section() {
	end_paragraph()
	if (name != "")
		printf "#define HELP_%s \"%s\"\n", name, text
	text = ""
	n = 0
}

# gsub() with a backslash in the new text is not the same in each awk.
function escape(line,	i, c, made) {
	for (i = 1; i <= length(line); i++) {
		c = substr(line, i, 1)
		made = made (c == "\\" || c == "\"" ? "\\" : "") c
	}
	return made
}

/^#/ { next }
# argp wraps a line of more than 79 columns.
/^      / && length > 83 { print FILENAME ":" FNR ": expected 79 columns at most, behind 4 of indent" >"/dev/stderr"; wide = 1 }
{ $0 = escape($0) }
/^[^ ]/ { end_section(); name = toupper($0); next }
/^$/ { end_paragraph(); next }
/^    @SPEC$/ { part = "\" HELP_SPEC \""; next }
/^      / { part = part (part == "" ? "" : "\\n") substr($0, 5); next }
{ part = part (part == "" ? "" : " ") substr($0, 5) }
END { end_section(); exit wide }
