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

/^#/ { next }
{ gsub(/\\/, "\\\\\\\\"); gsub(/"/, "\\\"") }
/^[^ ]/ { end_section(); name = toupper($0); next }
/^$/ { end_paragraph(); next }
/^    @SPEC$/ { part = "\" HELP_SPEC \""; next }
/^      / { part = part (part == "" ? "" : "\\n") substr($0, 5); next }
{ part = part (part == "" ? "" : " ") substr($0, 5) }
END { end_section() }
