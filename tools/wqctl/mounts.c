// SPDX-License-Identifier: GPL-2.0-only
/*
 * wqctl: the mounts of a process, from /proc/PID/mountinfo.
 *
 * A line has an ID, the parent's ID, a device, the root, the directory, options, optional fields, "-",
 * the type, the source and the options of the file system.  Blanks in these words are escaped.
 */
#include <stdlib.h>
#include <string.h>

#include "mounts.h"

/* Undo the escapes of a word: three octal digits. */
static char *unescape(char *word)
{
	char *from = word, *to = word;
	unsigned int byte;

	for (; *from; to++) {
		if (sscanf(from, "\\%3o", &byte) == 1) {
			*to = byte;
			from += 4;
		} else {
			*to = *from++;
		}
	}
	*to = '\0';
	return word;
}

static char *next_word(char **rest)
{
	return strsep(rest, "\n ") ?: (char *)"";
}

bool mounts_next(struct mounts *m)
{
	char *rest, *word;
	int i;

	if (!m->file || getline(&m->line, &m->size, m->file) < 0) {
		if (m->file)
			fclose(m->file);
		free(m->line);
		return false;
	}
	rest = m->line;
	m->id = strtoull(next_word(&rest), NULL, 10);
	for (i = 0; i < 3; i++)
		next_word(&rest);
	m->dir = unescape(next_word(&rest));
	next_word(&rest);
	for (m->passes_on = false; *(word = next_word(&rest)) && strcmp(word, "-");)
		m->passes_on |= !strncmp(word, "shared:", 7) || !strncmp(word, "master:", 7);
	m->type = next_word(&rest);
	next_word(&rest);
	m->options = next_word(&rest);
	return true;
}

void mounts_open(struct mounts *m, const char *pid)
{
	char path[300];

	snprintf(path, sizeof(path), "/proc/%.255s/mountinfo", pid);
	*m = (struct mounts){ .file = fopen(path, "re") };
}
